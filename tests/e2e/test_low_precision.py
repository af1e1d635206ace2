"""Quantised tables under autocast, from the command line to predictions, which cost what is reported."""

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from cli.main import main
from exporter.artifact.read import read_manifest
from exporter.check.artifact import open_artifact, reconstruct_request
from exporter.dtypes import Precision, TableDtype
from exporter.manifest import TowerEntry
from tests.e2e.conftest import FIXTURES, Export, export_command

pytestmark = pytest.mark.slow

MODEL = "hstu_match"
ASKED = ("--table-dtype", "int8", "--table-dtype", "video_id_emb=int4", "--table-dtype", "user_id_emb=fp16")
ROWS = FIXTURES / "data" / "ref_b32.parquet"


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A user tower in two packages; that it computes in bf16 is the config's wish."""
    folder = tmp_path_factory.mktemp("low")
    text = (FIXTURES / MODEL / "pipeline.config").read_text()
    config = folder / "pipeline.config"
    config.write_text(text.replace("export_config {", 'export_config { mixed_precision: "BF16"'))
    command = export_command(MODEL, folder / "out")
    command[command.index("--config") + 1] = str(config)
    assert main([*command, "--tower", "user", "--mode", "two_stage", *ASKED]) == 0
    return next((folder / "out").iterdir())


@pytest.fixture(scope="module")
def tower(artifact: Path) -> TowerEntry:
    return read_manifest(str(artifact)).towers[0]


def test_the_manifest_says_what_is_kept_in_what_and_what_that_costs(tower: TowerEntry) -> None:
    tables = {table.name: table for table in tower.embeddings}
    assert len(tables) > 5 and tower.precision is Precision.BF16
    assert {name: table.dtype for name, table in tables.items() if table.dtype is not TableDtype.INT8} == {
        "user_id_emb": TableDtype.FP16,
        "video_id_emb": TableDtype.INT4,
    }
    assert (tables["video_id_emb"].fp32_bytes, tables["video_id_emb"].bytes) == (128_000, 24_000)
    error = tables["video_id_emb"].error
    assert error is not None and 0 < error.mean_relative < error.max_relative < 0.07
    assert tower.verified.tolerance == 0.04 and tower.verified.fp32 is not None
    [output] = tower.verified.fp32.outputs
    assert 0.01 < output.relative < 0.2 < tower.verified.fp32.tolerance


def test_predictions_are_as_far_from_fp32_as_is_reported(
    artifact: Path, tower: TowerEntry, artifact_of: Export, tmp_path: Path
) -> None:
    assert tower.verified.fp32 is not None
    low, fp32 = (predicted(each, tmp_path) for each in (str(artifact), artifact_of(MODEL)))
    difference = np.abs(low - fp32).max()
    assert 1e-4 < difference <= 1.5 * tower.verified.fp32.outputs[0].largest  # of other rows


def predicted(artifact: str, folder: Path) -> np.ndarray:
    output = folder / f"{Path(artifact).name}.parquet"
    command = ["predict", "--artifact", artifact, "--tower", "user", "--input", str(ROWS)]
    assert main([*command, "--output", str(output)]) == 0
    return np.array(pq.read_table(output).column("user_tower_emb").to_pylist(), dtype=np.float32)


def test_the_request_behind_it_asks_for_the_same(artifact: Path, tower: TowerEntry) -> None:
    request = reconstruct_request(open_artifact(str(artifact)))
    dtypes = {table.name: table.dtype for table in tower.embeddings}
    assert (request["tables"], request["precision"]) == (
        {"layout": "packaged", "dtypes": dtypes},
        "bf16",
    )


@pytest.mark.families
def test_a_ranking_model_with_quantised_tables_passes(tmp_path: Path) -> None:
    command = [*export_command("dlrm_hstu", tmp_path), "--table-dtype", "int8", "--precision", "fp16"]
    assert main(command) == 0
    [artifact] = tmp_path.iterdir()
    [model] = read_manifest(str(artifact)).towers
    assert model.verified.fp32 is not None and len(model.verified.fp32.outputs) == len(model.outputs)
    assert all(output.relative < 0.02 for output in model.verified.fp32.outputs)
