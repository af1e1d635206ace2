"""All ranks' tables beside a dense package: what is published of them, and of those that failed."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from exporter.artifact.read import fetch_tower, file_ref, read_manifest
from exporter.artifact.upload import remove_uploads
from exporter.attempt.attempt import Attempt, ExportedTower, TowerResult
from exporter.construction.sources import fetch_checkpoint_once
from exporter.distributed.ranks import Ranks
from exporter.errors import LeaseUnproven
from exporter.manifest import TowerEntry, VerificationReport
from exporter.outcome import ExportOutcome, Failure
from exporter.pipeline.export import publish_artifact
from exporter.pipeline.publish import upload_exported_tower
from exporter.reports.table_files import TablesFile
from exporter.shards.layout import RankReport, RankTables, rows_path
from exporter.shards.rank import export_tables
from exporter.spec import TowerName
from exporter.towers.plan import PlannedTower
from tests.exporter.shards.conftest import order_of, spec_of
from tests.exporter.stage_events import ignore_stages

FAILURE = Failure(code="checkpoint_unreadable", message="__1_0.distcp is cut short")


def attempt_in(folder: Path) -> Attempt:
    spec = spec_of("hstu_match", folder)
    return Attempt(job_id="job", spec=spec, workspace=folder)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, tuple[RankReport, ...]]:
    """The reports of three ranks on two towers, whose dense packages are uploaded, and their folder."""
    folder = tmp_path_factory.mktemp("made")
    attempt, parts = attempt_in(folder), []
    for rank in range(3):
        ranks = Ranks(rank=rank, size=3)
        orders = [order_of(attempt.spec, attempt.workspace, ranks, tower=tower) for tower in (0, 1)]
        planned = tuple(order.planned for order in orders)
        results = tuple(exported(tower, attempt) for tower in ranks.share_out(planned))
        tables = tuple(export_tables(replace(order, is_helper=True), ignore_stages) for order in orders)
        parts.append(RankReport(planned=planned, results=results, tables=tables))
    return folder, tuple(parts)


@pytest.fixture
def attempt(made: tuple[Path, tuple[RankReport, ...]], tmp_path: Path) -> Attempt:
    """An attempt for which all of that has been sent."""
    shutil.copytree(made[0] / "out", tmp_path / "out")
    return attempt_in(tmp_path)


@pytest.fixture
def parts(made: tuple[Path, tuple[RankReport, ...]]) -> tuple[RankReport, ...]:
    return made[1]


def exported(planned: object, attempt: Attempt) -> TowerResult:
    assert isinstance(planned, PlannedTower)
    path, local = f"{planned.name}/aoti/aoti_model.pt2", attempt.workspace / f"{planned.name}.pt2"
    local.write_bytes(b"compiled " + planned.name.encode())
    entry = TowerEntry(
        name=planned.name,
        view=planned.config.view,
        package=file_ref(path, local),
        files=(),
        inputs=(),
        outputs=(),
        dims=(),
        verified=VerificationReport(tolerance=1e-5, largest_difference=0.0, cases=()),
        stage_seconds={},
    )
    _, source = fetch_checkpoint_once(attempt.spec, attempt.workspace, planned.config.pipeline)
    ready = ExportedTower(entry=entry, files={path: local}, sources=(source,), op_libraries=())
    return upload_exported_tower(TowerResult(planned=planned, exported=ready), attempt, ignore_stages)


def with_tables(part: RankReport, tower: int, tables: RankTables) -> RankReport:
    made = list(part.tables)
    made[tower] = tables
    return replace(part, tables=tuple(made))


def files_below(attempt: Attempt) -> set[str]:
    root = Path(attempt.artifact_uri)
    return {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()}


def test_the_manifest_joins_every_ranks_rows(
    attempt: Attempt, parts: tuple[RankReport, ...], tmp_path: Path
) -> None:
    outcome = publish_artifact(parts, attempt)
    assert outcome.failure is None
    user, item = read_manifest(attempt.artifact_uri).towers
    assert item.tables is not None and user.tables is not None
    assert item.tables.verified.refused == 3 * 2
    folder = fetch_tower(attempt.artifact_uri, item.name, tmp_path / "fetched").parent
    index = TablesFile.model_validate_json((folder / item.tables.index.path).read_bytes())
    [table] = index.tables
    assert [(rows.first, rows.end) for rows in table.shards] == [(0, 667), (667, 1334), (1334, 2000)]
    assert {rows.sha256 for rows in table.shards} == {file.sha256 for file in item.tables.shards}
    assert table.features == ("video_id",)
    assert files_below(attempt) == {"manifest.json"} | {
        ref.path for tower in (user, item) for ref in tower.all_files
    }


def test_a_tower_whose_tables_failed_on_one_rank_leaves_nothing_and_the_other_is_published(
    attempt: Attempt, parts: tuple[RankReport, ...]
) -> None:
    first, second, third = parts
    failed = with_tables(second, 0, replace(second.tables[0], failure=FAILURE, file=None))
    outcome = publish_artifact((first, failed, third), attempt)
    assert [(tower.tower, tower.failure) for tower in outcome.towers if tower.failure] == [("user", FAILURE)]
    assert [tower.name for tower in read_manifest(attempt.artifact_uri).towers] == ["item"]
    assert not [path for path in files_below(attempt) if "user" in path]


def test_a_tower_that_failed_takes_its_tables_with_it(
    attempt: Attempt, parts: tuple[RankReport, ...]
) -> None:
    first, *others = parts
    remove_uploads(first.results[0].uploaded, attempt.artifact_uri)
    failed = TowerResult(planned=first.planned[0], failure=FAILURE)
    outcome = publish_artifact((replace(first, results=(failed,)), *others), attempt)
    assert [tower.tower for tower in outcome.towers if tower.failure is None] == ["item"]
    assert not [path for path in files_below(attempt) if path.startswith("tables/user")]


def test_rows_that_could_not_be_sent_keep_all_from_being_published(
    attempt: Attempt, parts: tuple[RankReport, ...]
) -> None:
    first, second, third = parts
    upload_failure = with_tables(second, 1, replace(second.tables[1], upload_failure=FAILURE))
    outcome = publish_artifact((first, upload_failure, third), attempt)
    assert (outcome.failure, outcome.manifest_uri) == (FAILURE, None)
    assert files_below(attempt) == set()


def test_a_rank_that_failed_as_a_whole_fails_the_export(
    attempt: Attempt, parts: tuple[RankReport, ...]
) -> None:
    first, second, third = parts
    outcome = publish_artifact((first, second, replace(third, failure=FAILURE)), attempt)
    assert outcome.failure == FAILURE
    assert files_below(attempt) == set()


def test_ranks_that_would_cut_a_table_differently_publish_nothing_of_the_tower(
    attempt: Attempt, parts: tuple[RankReport, ...]
) -> None:
    first, second, third = parts
    other = with_tables(third, 0, replace(third.tables[0], plan="another"))
    outcome = publish_artifact((first, second, other), attempt)
    [failure] = [tower.failure for tower in outcome.towers if tower.failure]
    assert "the tables of the user tower are split differently on rank 2" in failure.message


def failures(outcome: ExportOutcome) -> list[str]:
    return [tower.failure.message for tower in outcome.towers if tower.failure]


def test_a_rank_without_tables_of_a_tower_publishes_nothing_of_it(
    attempt: Attempt, parts: tuple[RankReport, ...]
) -> None:
    first, second, third = parts
    outcome = publish_artifact((first, second, replace(third, tables=third.tables[1:])), attempt)
    assert failures(outcome) == ["of 3 ranks, 0 and 1 brought tables of the user tower"]
    assert not [path for path in files_below(attempt) if "user" in path]


@pytest.mark.parametrize("moved", [-1, 1])
def test_rows_that_are_in_no_shard_or_in_two_publish_nothing_of_the_tower(
    moved: int, attempt: Attempt, parts: tuple[RankReport, ...]
) -> None:
    first, second, third = parts
    [share] = second.tables[1].shards
    other = replace(second.tables[1], shards=(replace(share, end=share.end + moved),))
    outcome = publish_artifact((first, with_tables(second, 1, other), third), attempt)
    [message] = failures(outcome)
    assert f"after {1334 + moved} rows, the ranks' files continue with row 1334" in message
    assert [tower.name for tower in read_manifest(attempt.artifact_uri).towers] == ["user"]


def test_another_checkpoint_on_one_rank_publishes_nothing_of_the_tower(
    attempt: Attempt, parts: tuple[RankReport, ...]
) -> None:
    first, second, third = parts
    made = second.tables[1]
    assert made.checkpoint is not None
    other = replace(made, checkpoint=made.checkpoint.model_copy(update={"sha256": "0" * 64}))
    outcome = publish_artifact((first, with_tables(second, 1, other), third), attempt)
    [message] = failures(outcome)
    assert "rank 1 read another checkpoint at" in message and "for the tables of the item tower" in message


def dead(made: RankTables) -> RankTables:
    """The same of a process that ended when its file had been sent."""
    return RankTables(tower=made.tower, rank=made.rank, failure=FAILURE, died=True)


def test_what_a_rank_sent_that_died_is_not_in_the_way_of_the_other_tower(
    attempt: Attempt, parts: tuple[RankReport, ...]
) -> None:
    first, second, third = parts
    assert rows_path(TowerName.USER, 1, 3) in files_below(attempt)
    outcome = publish_artifact((first, with_tables(second, 0, dead(second.tables[0])), third), attempt)
    assert (outcome.failure, failures(outcome)) == (None, [FAILURE.message])
    assert [tower.name for tower in read_manifest(attempt.artifact_uri).towers] == ["item"]
    assert not [path for path in files_below(attempt) if "user" in path]


def test_it_is_left_where_the_job_may_be_anothers(attempt: Attempt, parts: tuple[RankReport, ...]) -> None:
    def unproven() -> None:
        raise LeaseUnproven("the store does not answer")

    first, second, third = parts
    parts = first, with_tables(second, 0, dead(second.tables[0])), third
    outcome = publish_artifact(parts, replace(attempt, await_lease=unproven))
    assert outcome.failure is not None and outcome.failure.code == "lease_unproven"
    assert files_below(attempt) == {rows_path(TowerName.USER, 1, 3)}


def test_a_failure_does_not_hide_that_files_could_not_be_sent(
    attempt: Attempt, parts: tuple[RankReport, ...]
) -> None:
    first, second, third = parts
    upload_failure = Failure(code="storage_error", message="the store is down", retryable=True)
    dense = replace(first.results[0], uploaded=(), upload_failure=upload_failure)
    failed = with_tables(second, 0, replace(second.tables[0], failure=FAILURE, file=None))
    outcome = publish_artifact((replace(first, results=(dense, *first.results[1:])), failed, third), attempt)
    assert (outcome.failure, outcome.manifest_uri) == (upload_failure, None)
