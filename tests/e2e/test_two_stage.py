"""Two packages run one after the other compute what one package computes."""

from pathlib import Path
from zipfile import ZipFile

import numpy as np
import pyarrow.parquet as pq
import pytest

from cli.main import main
from exporter.publish import read_manifest
from exporter.spec import TowerName
from tests.e2e.conftest import FIXTURES, Export, export_command, recorded_batches

pytestmark = pytest.mark.slow

MODEL = "hstu_match"


@pytest.fixture(scope="module")
def two_stage(tmp_path_factory: pytest.TempPathFactory) -> str:
    output = tmp_path_factory.mktemp("two_stage")
    assert main([*export_command(MODEL, output), "--mode", "two_stage"]) == 0
    [artifact] = output.iterdir()
    return str(artifact)


def predict(artifact: str, tower: str, rows: str, output: Path) -> dict[str, list[list[float]]]:
    command = ["predict", "--artifact", artifact, "--tower", tower]
    assert main([*command, "--input", str(FIXTURES / rows), "--output", str(output)]) == 0
    columns: dict[str, list[list[float]]] = pq.read_table(output).to_pydict()
    return columns


@pytest.mark.parametrize("name", ["b3_empty", "b32", "items_b7"])
def test_both_modes_predict_the_same(name: str, two_stage: str, artifact_of: Export, tmp_path: Path) -> None:
    [batch] = (batch for batch in recorded_batches(MODEL) if batch["batch"] == name)
    tower = batch["part"].removesuffix("_tower")
    apart = predict(two_stage, tower, batch["parquet"], tmp_path / "apart.parquet")
    together = predict(artifact_of(MODEL), tower, batch["parquet"], tmp_path / "together.parquet")
    assert apart.keys() == together.keys()
    for column, values in together.items():
        np.testing.assert_allclose(np.array(apart[column]), np.array(values), rtol=0, atol=1e-6)


def test_the_manifest_says_how_to_join_them(two_stage: str) -> None:
    [user, _] = read_manifest(two_stage).towers
    assert user.name is TowerName.USER
    assert user.sparse is not None
    assert [tensor.name for tensor in user.sparse.tensors][:3] == [
        "contextual__ebc",
        "query_time__ebc",
        "uih__sequence",
    ]
    shapes = {tensor.name: tensor.shape for tensor in user.sparse.tensors}
    assert shapes["uih__sequence"][0] == shapes["uih_action__sequence"][0] == "seq_uih_seq"
    assert {dim.name for dim in user.sparse.dims} == {"batch", "seq_uih_seq"}


def test_tables_are_in_the_sparse_package_only(two_stage: str) -> None:
    [user, _] = read_manifest(two_stage).towers
    assert user.sparse is not None
    tables = 2000 * 16 * 4  # bytes of the history's table alone
    sparse, dense = (Path(two_stage, ref.path) for ref in (user.sparse.package, user.package))
    assert _blob_bytes(sparse) > tables > _blob_bytes(dense)


def _blob_bytes(package: Path) -> int:
    with ZipFile(package) as archive:
        return sum(entry.file_size for entry in archive.infolist() if entry.filename.endswith(".blob"))
