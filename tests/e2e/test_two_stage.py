"""Two packages run one after the other compute what one package computes, and what TorchEasyRec computed."""

import json
import math
from pathlib import Path
from zipfile import ZipFile

import numpy as np
import pyarrow.parquet as pq
import pytest

from cli.main import main
from exporter.artifact.read import read_manifest
from exporter.manifest import TowerEntry
from tests.e2e.conftest import FIXTURES, Export, flat, marks_of
from tests.exporter.models.recorded import recorded_batches

pytestmark = pytest.mark.slow

MODELS = ("hstu_match", "dlrm_hstu_trunc")  # TorchEasyRec cannot export the second one in two stages
MARKED = [pytest.param(model, marks=marks_of(model)) for model in MODELS]
NAMES = ("b1", "b3_empty", "b32", "items_b7")
BATCHES = [
    pytest.param(
        *(model, batch["part"], batch["parquet"]), id=f"{model}-{batch['batch']}", marks=marks_of(model)
    )
    for model in MODELS
    for batch in recorded_batches(model)
    if batch["batch"] in NAMES
]


def predict(artifact: str, part: str, rows: str, output: Path) -> dict[str, list[object]]:
    command = ["predict", "--artifact", artifact, "--tower", part.removesuffix("_tower")]
    assert main([*command, "--outputs-only", "--input", str(FIXTURES / rows), "--output", str(output)]) == 0
    columns: dict[str, list[object]] = pq.read_table(output).to_pydict()
    return columns


@pytest.mark.parametrize(("model", "part", "rows"), BATCHES)
def test_both_modes_predict_the_same(
    model: str, part: str, rows: str, two_stage_of: Export, artifact_of: Export, tmp_path: Path
) -> None:
    apart = predict(two_stage_of(model), part, rows, tmp_path / "apart.parquet")
    together = predict(artifact_of(model), part, rows, tmp_path / "together.parquet")
    assert apart.keys() == together.keys()
    for column, values in together.items():
        numbers, expected = (np.array(list(flat(each))) for each in (apart[column], values))
        np.testing.assert_allclose(numbers, expected, rtol=0, atol=1e-6)


@pytest.fixture(params=MARKED)
def tower(request: pytest.FixtureRequest, two_stage_of: Export) -> TowerEntry:
    return read_manifest(two_stage_of(request.param)).towers[0]


def test_the_manifest_says_how_to_join_the_packages(tower: TowerEntry) -> None:
    assert tower.sparse is not None
    shapes = {tensor.name: tensor.shape for tensor in tower.sparse.tensors}
    assert list(shapes) == sorted(shapes)
    assert shapes["uih__sequence"][0] == shapes["uih_action__sequence"][0] == "seq_uih_seq"
    assert shapes["uih__sequence_length"] == ("batch",)
    dims = {axis for shape in shapes.values() for axis in shape if isinstance(axis, str)}
    assert {dim.name for dim in tower.sparse.dims} == dims


@pytest.mark.parametrize("model", MARKED)
def test_tables_are_in_the_sparse_package_only(model: str, two_stage_of: Export) -> None:
    root = Path(two_stage_of(model))
    tower = read_manifest(str(root)).towers[0]
    assert tower.sparse is not None
    tables, others = _trained_bytes(model, tower.name)
    assert tables <= _weight_bytes(root / tower.sparse.package.path)
    assert _weight_bytes(root / tower.package.path) < others * 1.2  # each constant is padded to 64 bytes


def _trained_bytes(model: str, tower: str) -> tuple[int, int]:
    """The bytes of a tower's tables, and of its other tensors."""
    part = tower if tower == "model" else f"{tower}_tower"
    shapes = json.loads((FIXTURES / model / "outputs" / f"{part}.state_dict.json").read_text())
    sizes = {
        name: math.prod(shape) * (8 if dtype == "torch.int64" else 4)
        for name, (shape, dtype) in shapes.items()
    }
    tables = sum(size for name, size in sizes.items() if "embedding_group" in name)
    return tables, sum(sizes.values()) - tables


def _weight_bytes(package: Path) -> int:
    with ZipFile(package) as archive:
        return sum(entry.file_size for entry in archive.infolist() if entry.filename.endswith(".blob"))
