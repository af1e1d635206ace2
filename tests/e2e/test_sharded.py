"""A checkpoint that two ranks wrote, put into shards by one, two and three ranks: all predict the same."""

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from safetensors.torch import load_file, save_file

from benchmarks.measure.large_table import large_table_spec
from cli.main import main
from exporter.artifact.read import read_manifest
from exporter.distributed.ranks import Ranks
from exporter.dtypes import TableDtype
from exporter.manifest import ShardedTables, TowerEntry
from exporter.reports.table_files import TablesFile
from exporter.shards.rank import write_tables
from exporter.stages import no_progress
from tests.e2e.conftest import FIXTURES, Export, flat
from tests.e2e.loaded_rows import answer_of_a_server
from tests.exporter.models.recorded import recorded_batches
from tests.exporter.shards.conftest import order_of, spec_of
from tests.memory_taken import memory_taken

pytestmark = pytest.mark.slow

MODEL, SAME_WEIGHTS = "dlrm_hstu_sharded", "dlrm_hstu"
ROWS = next(batch["parquet"] for batch in recorded_batches(SAME_WEIGHTS) if batch["batch"] == "b7")
LARGE_BYTES = 960 << 20
Sharded = Callable[..., str]
Predicted = dict[str, list[object]]


@pytest.fixture(scope="module")
def sharded_on(tmp_path_factory: pytest.TempPathFactory) -> Sharded:
    """The artifact of the model as so many ranks export it; compiled once per number of threads."""
    made: dict[tuple[int, tuple[str, ...]], str] = {}

    def artifact(ranks: int, *options: str) -> str:
        if (ranks, options) not in made:
            output = tmp_path_factory.mktemp(f"ranks-{ranks}")
            command = [
                "export",
                *("--config", str(FIXTURES / MODEL / "pipeline.config")),
                *("--checkpoint", str(FIXTURES / MODEL / "model.ckpt-0")),
                *("--sample-input", str(FIXTURES / "data" / "train.parquet")),
                *("--mode", "two_stage", "--tables", "sharded", "--ranks", str(ranks)),
                *("--output", str(output)),
                *options,
            ]
            assert main(command) == 0
            [made[ranks, options]] = (str(folder) for folder in output.iterdir())
        return made[ranks, options]

    return artifact


def tower_of(artifact: str) -> TowerEntry:
    [tower] = read_manifest(artifact).towers
    return tower


def predict(artifact: str, output: Path) -> Predicted:
    command = ["predict", "--outputs-only", "--artifact", artifact, "--tower", "model"]
    assert main([*command, "--input", str(FIXTURES / ROWS), "--output", str(output)]) == 0
    columns: Predicted = pq.read_table(output).to_pydict()
    return columns


@pytest.fixture(scope="module")
def unified(artifact_of: Export, tmp_path_factory: pytest.TempPathFactory) -> Predicted:
    """What one package predicts, tables and all."""
    return predict(artifact_of(SAME_WEIGHTS), tmp_path_factory.mktemp("unified") / "out.parquet")


@pytest.mark.parametrize("ranks", [*(pytest.param(each, marks=pytest.mark.ranks) for each in (1, 2)), 3])
def test_any_number_of_ranks_exports_what_one_package_predicts(
    ranks: int, sharded_on: Sharded, unified: Predicted, tmp_path: Path
) -> None:
    apart = predict(sharded_on(ranks), tmp_path / "out.parquet")
    assert apart.keys() == unified.keys()
    for column, expected in unified.items():
        found, numbers = (np.array(list(flat(values))) for values in (apart[column], expected))
        np.testing.assert_allclose(found, numbers, rtol=0, atol=1e-6)


@pytest.mark.ranks
def test_quantised_rows_predict_as_far_from_fp32_as_is_reported(
    sharded_on: Sharded, unified: Predicted, tmp_path: Path
) -> None:
    artifact = sharded_on(2, "--table-dtype", "int8", "--table-dtype", "video_id_emb=int4")
    tower = tower_of(artifact)
    errors = {table.name: table.error for table in tower.embeddings}
    assert errors["video_id_emb"] is not None and errors["user_id_emb"] is not None
    assert errors["video_id_emb"].max_relative > 5 * errors["user_id_emb"].max_relative > 0
    assert tower.verified.tolerance == 1e-5
    assert_as_reported(tower, predict(artifact, tmp_path / "out.parquet"), unified)


def assert_as_reported(tower: TowerEntry, low: Predicted, fp32: Predicted) -> None:
    assert tower.verified.fp32 is not None
    for output in tower.verified.fp32.outputs:
        found, numbers = (np.array(list(flat(each[output.output]))) for each in (low, fp32))
        difference = np.abs(found - numbers).max()
        assert (difference > 0) == (output.largest > 0), output.output  # not of counts
        assert difference <= 1.5 * output.largest, output.output  # of other rows


@pytest.mark.ranks
def test_int8_rows_of_any_number_of_ranks_predict_the_same_as_far_from_fp32_as_is_reported(
    sharded_on: Sharded, unified: Predicted, tmp_path: Path
) -> None:
    made = [sharded_on(ranks, "--table-dtype", "int8") for ranks in (1, 2, 3)]
    alone, *others = (predict(each, tmp_path / f"{Path(each).name}.parquet") for each in made)
    for artifact, apart in zip(made, (alone, *others), strict=True):
        tower = tower_of(artifact)
        assert {table.dtype for table in tower.embeddings} == {TableDtype.INT8}
        assert_as_reported(tower, apart, unified)
        for column, expected in alone.items():
            found, numbers = (np.array(list(flat(values))) for values in (apart[column], expected))
            np.testing.assert_allclose(found, numbers, rtol=0, atol=1e-6)


def write_the_last_ranks_rows(folder: Path) -> None:
    """Of a large table, by the last of as many ranks, and in the dtype, that the folder is named after."""
    large, ranks, dtype = (
        large_table_spec(folder, LARGE_BYTES, real=False),
        int(folder.name[0]),
        folder.name[2:],
    )
    spec = spec_of(
        *("hstu_match", folder),
        config=(folder / "pipeline.config").read_text(),
        checkpoint_uri=large.checkpoint_uri,
        towers=["item"],
        tables={"layout": "sharded", "dtype": dtype},
    )
    order = order_of(spec, folder, Ranks(rank=ranks - 1, size=ranks))
    made = write_tables(order, folder / "rows.safetensors", no_progress)
    assert made.file is not None and made.file.size >= LARGE_BYTES / ranks / (1 if dtype == "fp32" else 3)


@pytest.mark.ranks
@pytest.mark.parametrize(("ranks", "dtype"), [(1, "fp32"), (2, "fp32"), (3, "fp32"), (2, "int8")])
def test_a_rank_takes_less_memory_than_its_share_of_the_tables(
    ranks: int, dtype: str, tmp_path: Path
) -> None:
    folder = tmp_path / f"{ranks}-{dtype}"
    folder.mkdir()
    assert memory_taken(write_the_last_ranks_rows, folder) < LARGE_BYTES / ranks / 2


def test_every_rank_has_rows_of_every_table(sharded_on: Sharded) -> None:
    tower = tower_of(sharded_on(3))
    assert tower.sparse is None and tower.tables is not None
    index = TablesFile.model_validate_json((Path(sharded_on(3)) / tower.tables.index.path).read_bytes())
    assert len(index.tables) == 7
    for table in index.tables:
        assert len(table.shards) == len(tower.tables.shards) == 3
        assert table.shards[-1].end == table.rows


@pytest.mark.ranks
def test_the_contract_does_not_depend_on_the_ranks(sharded_on: Sharded) -> None:
    first, third = tower_of(sharded_on(1)), tower_of(sharded_on(3))
    assert first.tables is not None and third.tables is not None
    assert (first.inputs, first.outputs, first.dims) == (third.inputs, third.outputs, third.dims)
    assert (first.tables.tensors, first.tables.dims) == (third.tables.tensors, third.tables.dims)
    assert third.tables.verified.cases == 3 * first.tables.verified.cases


@pytest.mark.ranks
def test_the_lab_tries_the_shards(sharded_on: Sharded) -> None:
    command = [sys.executable, "-m", "cli.main", "check", "--artifact", sharded_on(2), "--sizes", "2"]
    assert "everything passed" in subprocess.run(command, check=True, capture_output=True, text=True).stdout


Damage = Callable[[Path, ShardedTables], Path]  # of an artifact; gives the file that is to be named


def edited(artifact: Path, tables: ShardedTables) -> Path:
    shard = artifact / tables.shards[2].path
    sound = shard.read_bytes()
    shard.write_bytes(sound[:-1] + bytes([sound[-1] ^ 1]))
    return shard


def missing(artifact: Path, tables: ShardedTables) -> Path:
    shard = artifact / tables.shards[1].path
    shard.unlink()
    return shard


def of_another_rank(artifact: Path, tables: ShardedTables) -> Path:
    shutil.copy(artifact / tables.shards[0].path, artifact / tables.shards[1].path)
    return artifact / tables.shards[1].path


def of_another_export(artifact: Path, tables: ShardedTables) -> Path:
    """The rows are as many and of the same names, and well described."""
    shard = artifact / tables.shards[0].path
    save_file({name: values + 1 for name, values in load_file(shard).items()}, shard)
    return shard


def with_another_index(artifact: Path, tables: ShardedTables) -> Path:
    """It names the same files, for other rows."""
    index = artifact / tables.index.path
    found = TablesFile.model_validate_json(index.read_bytes())
    first, *others = found.tables
    shards = [
        shard.model_copy(update={"file": other.file, "sha256": other.sha256})
        for shard, other in zip(first.shards, reversed(first.shards), strict=True)
    ]
    swapped = first.model_copy(update={"shards": tuple(shards)})
    index.write_text(found.model_copy(update={"tables": (swapped, *others)}).model_dump_json(indent=2))
    return index


def test_a_server_calls_it_like_any_other_tower(sharded_on: Sharded, tmp_path: Path) -> None:
    predicted = predict(sharded_on(3), tmp_path / "out.parquet")
    answered = answer_of_a_server(sharded_on(3), FIXTURES / ROWS, tmp_path)
    for name, values in predicted.items():
        np.testing.assert_array_equal(list(flat(values)), answered[name].flatten())


@pytest.mark.parametrize("damage", [edited, missing, of_another_rank, of_another_export, with_another_index])
def test_a_damaged_artifact_is_refused_and_the_file_named(
    damage: Damage, sharded_on: Sharded, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    artifact = Path(shutil.copytree(sharded_on(3), tmp_path / "copy"))
    tables = tower_of(str(artifact)).tables
    assert tables is not None
    named = damage(artifact, tables)
    rows = str(FIXTURES / ROWS)
    command = ["predict", "--artifact", str(artifact), "--tower", "model", "--input", rows]
    assert main([*command, "--output", str(tmp_path / "out.parquet")]) == 1
    told = capsys.readouterr().err
    assert "[invalid_artifact]" in told and named.name in told
    assert not (tmp_path / "out.parquet").exists()
