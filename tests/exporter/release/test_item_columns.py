"""Columns of items: where rows are of users, and where they are of items, the same id has other names."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from exporter.config.evaluation import read_evaluation
from exporter.config.parse import parse_pipeline_config
from exporter.dims.plan import DimPlan
from exporter.errors import InvalidRows
from exporter.manifest import VectorsEntry
from exporter.options.release_gate import ReleaseGate
from exporter.release.releases import JudgedRelease, Side
from exporter.release.retrieval import choose_columns
from exporter.serving.downloaded_tower import DownloadedTower
from exporter.spec import TowerName
from exporter.towers.view import tower_configs
from tests.jobs.factories import make_entry, make_manifest

CONFIG = Path(__file__).parents[2] / "fixtures" / "torcheasyrec" / "hstu_match" / "pipeline.config"
ROWS = ("user_id", "uih_seq__video_id", "cand_seq__video_id", "cand_seq__action_weight")


VECTORS = VectorsEntry(
    files=(),
    rows=0,
    id_column="sku",
    id_type="string",
    vector_column="vector",
    width=8,
    dtype="float32",
    output="item_tower_emb",
    checked_rows=0,
    tolerance=0.0,
    largest_difference=0.0,
    scale=1.0,
    seconds=0.0,
    rows_per_second=0.0,
    peak_memory_bytes=0,
)


def judged(folder: Path, rows: tuple[str, ...] = ROWS, **gate: str) -> JudgedRelease:
    """Return a release whose training rows name an item as a member of a sequence of candidates."""
    pq.write_table(pa.table({name: [1] for name in rows}), folder / "rows.parquet")
    text = CONFIG.read_text()
    towers = {
        config.name: DownloadedTower(
            manifest=make_manifest("job", make_entry(config.name)),
            entry=make_entry(config.name),
            chain=(),
            features=config.pipeline.features,
            plan=DimPlan(inputs=(), dims=()),
            root=Path(),
        )
        for config in tower_configs(parse_pipeline_config(text), None)
    }
    side = Side(job_id="job", uris={}, towers=towers, folder=folder)
    return JudgedRelease(
        candidate=side,
        baseline=side,
        evaluation=read_evaluation(text),
        gate=ReleaseGate.model_validate(gate),
        rows_uri=str(folder / "rows.parquet"),
        item_input_uri=str(folder / "items.parquet"),
        scratch=folder,
    )


def of_item_tower(
    release: JudgedRelease, change: Callable[[DownloadedTower], DownloadedTower]
) -> JudgedRelease:
    tower = change(release.candidate.towers[TowerName.ITEM])
    towers = {**release.candidate.towers, TowerName.ITEM: tower}
    return replace(release, candidate=replace(release.candidate, towers=towers))


def test_items_are_identified_by_the_feature_that_the_sampler_names_as_a_candidate(tmp_path: Path) -> None:
    release = judged(tmp_path)
    assert release.evaluation.item_id == "cand_seq__video_id"
    assert release.id_column == "video_id"
    assert choose_columns(release).items == "cand_seq__video_id"


def test_the_column_of_chosen_items_is_one_of_rows_and_not_of_items(tmp_path: Path) -> None:
    release = judged(tmp_path, (*ROWS, "bought"), item_column="bought")
    assert (choose_columns(release).items, release.id_column) == ("bought", "video_id")


def test_published_vectors_say_by_which_column_items_are_identified(tmp_path: Path) -> None:
    release = judged(tmp_path, (*ROWS, "sku"))
    entry = make_entry(TowerName.ITEM).model_copy(update={"vectors": VECTORS})
    release = of_item_tower(release, lambda tower: replace(tower, entry=entry))
    assert (release.id_column, choose_columns(release).items) == ("sku", "sku")


def test_rows_without_a_column_of_items_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidRows, match="no column 'video_id'") as refused:
        choose_columns(judged(tmp_path, ROWS[:2]))
    assert "release_gate.item_column" in refused.value.hint


def test_an_item_tower_without_ids_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidRows, match="reads no ids") as refused:
        _ = of_item_tower(judged(tmp_path), lambda tower: replace(tower, features=())).id_column
    assert refused.value.where == "item_id_column"
