"""An item tower's vectors of all items: what TorchEasyRec computed, checked, indexed and published."""

import json
from pathlib import Path

import faiss
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from safetensors.numpy import load_file

from cli.main import main
from exporter.artifact.read import file_ref, read_manifest
from exporter.data.parquet import open_parquet
from exporter.errors import InvalidRows
from exporter.items.ids import check_ids
from exporter.items.plan import Items, VectorsPlan
from exporter.items.read_back import ComputedItems
from exporter.items.stream import write_vectors
from exporter.manifest import Manifest, Metric, VectorsEntry
from exporter.serving.downloaded_tower import download_tower
from exporter.spec import TowerName
from exporter.verify.runner import PackageRunner
from tests.e2e.conftest import FIXTURES, export_command

pytestmark = pytest.mark.slow

MODEL = "hstu_match"


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two files of items that go by names; several calls to a read, two packages to a call."""
    folder = tmp_path_factory.mktemp("items")
    table = pq.read_table(FIXTURES / "data" / "items.parquet")
    names = pa.array([f"item {video}" for video in table.column("video_id").to_pylist()])
    table = table.append_column("name", names)
    (folder / "rows").mkdir()
    pq.write_table(table.slice(0, 1500), folder / "rows" / "a.parquet")
    pq.write_table(table.slice(1500), folder / "rows" / "b.parquet")
    command = export_command(MODEL, folder / "out")
    command[command.index("--item-input") + 1] = str(folder / "rows")
    options = ["--tower", "item", "--mode", "two_stage", "--max-batch-size", "64"]
    vectors = ["--materialise-items", "--item-id-column", "name", "--item-index", "ivf_flat"]
    assert main([*command, *options, *vectors]) == 0
    return next((folder / "out").iterdir())


@pytest.fixture(scope="module")
def manifest(artifact: Path) -> Manifest:
    return read_manifest(str(artifact))


@pytest.fixture(scope="module")
def entry(manifest: Manifest) -> VectorsEntry:
    [tower] = manifest.towers
    assert tower.vectors is not None
    return tower.vectors


def test_vectors_are_the_recorded_outputs(artifact: Path, entry: VectorsEntry) -> None:
    table = pq.read_table([artifact / file.path for file in entry.files])
    vectors = dict(zip(table.column("name").to_pylist(), table.column("vector").to_pylist(), strict=True))
    videos = pq.read_table(FIXTURES / "data" / "ref_items_b32.parquet").column("video_id").to_pylist()
    recorded = load_file(FIXTURES / MODEL / "outputs" / "item_tower__items_b32.out.safetensors")[entry.output]
    made = np.array([vectors[f"item {video}"] for video in videos], dtype=np.float32)
    np.testing.assert_allclose(made, recorded, rtol=0, atol=1e-5)


def test_the_manifest_says_what_was_made_and_how(entry: VectorsEntry) -> None:
    assert (entry.rows, entry.width, entry.id_column, entry.id_type) == (2000, 32, "name", "string")
    assert entry.checked_rows == 2000  # all of them, where they are few
    assert entry.largest_difference <= entry.tolerance * entry.scale
    assert entry.rows_per_second > 0 and entry.peak_memory_bytes > 100 << 20


def test_every_file_is_the_one_the_manifest_names(artifact: Path, manifest: Manifest) -> None:
    [tower] = manifest.towers
    paths = {file.path for file in tower.all_files}
    assert {"item/vectors/part-00000.parquet", "item/index/items.faiss"} < paths
    assert all(file_ref(file.path, artifact / file.path) == file for file in tower.all_files)
    assert paths == {
        path.relative_to(artifact).as_posix() for path in (artifact / "item").rglob("*") if path.is_file()
    }


def test_the_index_finds_items_by_their_rows(artifact: Path, entry: VectorsEntry) -> None:
    assert entry.index is not None
    assert (entry.index.labels, entry.index.metric) == ("row_numbers", Metric.COSINE)
    assert entry.index.recall_at_10 is not None and entry.index.recall_at_10 > 0.9
    index = faiss.read_index(str(artifact / entry.index.file.path))
    vectors = pq.read_table(artifact / entry.files[0].path).column("vector").to_pylist()[700:705]
    _, found = index.search(np.array(vectors, dtype=np.float32), 1)
    assert found.ravel().tolist() == [700, 701, 702, 703, 704]


def test_inspect_shows_the_vectors(artifact: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", "--full", str(artifact)]) == 0
    shown = capsys.readouterr().out
    assert all(part in shown for part in ("vectors of 2,000 items", "ivf_flat, nlist 51", "recall@10"))


def test_to_run_the_tower_its_vectors_are_not_downloaded(artifact: Path, tmp_path: Path) -> None:
    download_tower(str(artifact), TowerName.ITEM, tmp_path)
    assert not (tmp_path / "item" / "vectors").exists()


def test_a_row_that_cannot_be_encoded_is_named(artifact: Path, manifest: Manifest, tmp_path: Path) -> None:
    """Late in a large file, where no sample for tracing comes to."""
    videos = np.arange(40_000) % 2000
    videos[30_000] = 2000
    pq.write_table(pa.table({"video_id": videos, "item": np.arange(40_000)}), tmp_path / "rows.parquet")
    served, source = (
        download_tower(str(artifact), TowerName.ITEM, tmp_path),
        open_parquet(str(tmp_path / "rows.parquet")),
    )
    items = Items(
        source=source,
        ids=check_ids(source, "item", scratch=tmp_path),
        features=served.features,
        plan=served.plan,
        index=None,
        metric=Metric.COSINE,
    )
    wanted = VectorsPlan(items=items, output="item_tower_emb", width=32, index=None)
    runner = PackageRunner(served.chain, op_libraries=manifest.op_libraries, scratch=tmp_path)
    told: list[str] = []
    with pytest.raises(
        InvalidRows, match=r"rows\.parquet, column video_id, row 30000: 2000 is not in 0 to 1999"
    ):
        write_vectors(
            wanted,
            runner,
            tmp_path,
            np.array([3]),
            ComputedItems(tmp_path / "computed"),
            lambda done, detail: told.append(detail),
        )
    assert len(told) == 1 and told[0].startswith("vectors: 16,384 of 40,000 items")


def test_items_named_twice_are_refused_before_anything_is_compiled(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pq.write_table(pa.table({"video_id": [5, 6, 5]}), tmp_path / "rows.parquet")
    command = export_command(MODEL, tmp_path / "out")
    command[command.index("--item-input") + 1] = str(tmp_path / "rows.parquet")
    assert main([*command, "--tower", "item", "--materialise-items", "--json"]) == 1
    job = json.loads(capsys.readouterr().out)
    [tower] = job["towers"]
    assert (tower["failure"]["code"], tower["stage"]) == ("invalid_rows", "rows")
    assert "row 2: item 5 is also row 0" in tower["failure"]["message"]
    assert not (tmp_path / "out").exists()
