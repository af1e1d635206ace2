"""A family whose operator has no shape rule: exported with an inferred one, served where it is trusted."""

import json
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from numpy.testing import assert_allclose
from safetensors.torch import save_file

from exporter.artifact.read import read_manifest
from exporter.spec import ExportSpec, TowerName

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
FAMILY = """
import torch
from exporter.families.family import Family, InputDeclaration, TowerDeclaration
from torch import Tensor, nn

@torch.library.custom_op("ruleless::doubled", mutates_args=())
def doubled(x: Tensor) -> Tensor:
    return x * 2

class Doubled(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Linear(2, 1)

    def forward(self, inputs):
        return {"score": self.scale(doubled(inputs["x"])).squeeze(1)}

class Ruleless(Family):
    def towers(self, config):
        return [TowerDeclaration(inputs=[InputDeclaration(name="x", dtype="float32", shape=("batch", 2))])]

    def build(self, config, tower):
        return Doubled()
"""


def slipway(folder: Path, *arguments: str, families: str = "") -> subprocess.CompletedProcess[str]:
    environment = ["env", f"PYTHONPATH={ROOT}:{folder / 'site'}", f"SLIPWAY_FAMILIES={families}"]
    command = [*environment, sys.executable, "-m", "cli.main", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A family, its weights and rows, and what they were exported to."""
    folder = tmp_path_factory.mktemp("ruleless")
    metadata = folder / "site" / "ruleless-1.0.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: ruleless\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text("[slipway.families]\nruleless = ruleless:Ruleless\n")
    (folder / "site" / "ruleless.py").write_text(FAMILY)
    save_file(
        {"scale.weight": torch.tensor([[1.0, 10.0]]), "scale.bias": torch.tensor([0.5])},
        folder / "w.safetensors",
    )
    pq.write_table(pa.table({"x": [[float(row), 1.0] for row in range(40)]}), folder / "rows.parquet")
    (folder / "config.json").write_text("{}")
    spec = ExportSpec(
        family="ruleless",
        config_uri=str(folder / "config.json"),
        checkpoint_uri=str(folder / "w.safetensors"),
        sample_input_uri=str(folder / "rows.parquet"),
        output_uri=str(folder / "out"),
        max_batch_size=16,
        allow_inferred_ops=True,
    )
    (folder / "spec.json").write_text(spec.model_dump_json(exclude_unset=True))
    ended = slipway(folder, "export", "--spec", "spec.json", families="ruleless")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return folder


def predict(folder: Path, *, families: str) -> subprocess.CompletedProcess[str]:
    [artifact] = (folder / "out").iterdir()
    rows = ["--input", "rows.parquet", "--output", f"served{len(families)}.parquet", "--json"]
    return slipway(
        folder, "predict", "--artifact", str(artifact), "--tower", "model", *rows, families=families
    )


def test_the_manifest_says_what_was_inferred(folder: Path) -> None:
    [artifact] = (folder / "out").iterdir()
    manifest = read_manifest(str(artifact))
    [inferred] = manifest.towers[0].inferred_ops
    assert "ruleless" in inferred.model_dump_json()
    assert (manifest.towers[0].name, manifest.op_libraries) == (TowerName.MODEL, ("ruleless",))


def test_rows_are_served_where_the_family_is_listed(folder: Path) -> None:
    ended = predict(folder, families="ruleless")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    served = pq.read_table(folder / "served8.parquet")["score"].to_numpy()
    assert_allclose(served, [2.0 * row + 20.5 for row in range(40)], rtol=1e-6)


def test_nothing_is_imported_where_it_is_not(folder: Path) -> None:
    ended = predict(folder, families="")
    assert ended.returncode != 0
    told = json.loads(ended.stdout or ended.stderr)["error"]
    assert told["code"] == "invalid_artifact" and "no listed family" in told["message"]
