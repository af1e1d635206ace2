"""Events and outcomes change a job's record."""

from datetime import UTC, datetime

from exporter.outcome import ExportOutcome
from exporter.spec import TowerName
from exporter.stages import Stage
from jobs.model import JobState, TowerState
from jobs.progress import finish, fold_events
from tests.jobs.factories import NOW, make_event, make_failure, make_job, make_outcome

RUNNING = make_job(JobState.RUNNING, attempt=1)


def test_a_started_stage_shows_in_its_tower_only() -> None:
    user, item = fold_events(RUNNING, [make_event(at=7.0)]).towers
    assert (user.state, user.stage, user.stage_started_at) == (
        TowerState.RUNNING,
        Stage.TRACE,
        datetime(1970, 1, 1, 0, 0, 7, tzinfo=UTC),
    )
    assert item.state is TowerState.WAITING


def test_progress_is_of_the_stage() -> None:
    events = [make_event(), make_event(kind="progress", fraction=0.5, detail="kernels")]
    user = fold_events(RUNNING, events).towers[0]
    assert (user.fraction, user.detail) == (0.5, "kernels")


def test_code_of_the_cache_that_was_wrong_is_told_at_once() -> None:
    noted = make_event(stage=Stage.VERIFY, kind="noted", detail="code of the cache was dropped: it crashed")
    user = fold_events(RUNNING, [make_event(stage=Stage.VERIFY), noted]).towers[0]
    assert user.code_note == "code of the cache was dropped: it crashed"
    again = fold_events(RUNNING.model_copy(update={"towers": (user,)}), [make_event()]).towers[0]
    assert again.code_note == user.code_note


def test_seconds_are_kept_per_stage() -> None:
    events = [make_event(stage=stage, kind="finished", seconds=2.5) for stage in (Stage.TRACE, Stage.COMPILE)]
    assert fold_events(RUNNING, events).towers[0].stage_seconds == {Stage.TRACE: 2.5, Stage.COMPILE: 2.5}


def test_an_event_of_an_unknown_tower_changes_nothing() -> None:
    assert fold_events(RUNNING, [make_event(tower="attic")]) == RUNNING


def test_all_towers_published_is_success() -> None:
    job = finish(RUNNING, make_outcome(), NOW)
    assert (job.state, job.manifest_uri) == (JobState.SUCCEEDED, "/out/manifest.json")
    assert job.towers[0].digest == "ab" * 32
    assert job.towers[0].verification is not None and job.towers[0].verification.passed == 1
    assert job.towers[0].code == "cold"


def test_one_tower_failing_is_partial_success() -> None:
    failure = make_failure()
    job = finish(RUNNING, make_outcome(failed={TowerName.ITEM: failure}), NOW)
    assert job.state is JobState.PARTIALLY_SUCCEEDED
    assert (job.towers[1].state, job.towers[1].failure) == (TowerState.FAILED, failure)
    assert job.towers[1].package_uri is None


def test_no_tower_published_is_failure() -> None:
    failure = make_failure()
    job = finish(RUNNING, make_outcome(failed={TowerName.USER: failure, TowerName.ITEM: failure}), NOW)
    assert (job.state, job.failure) == (JobState.FAILED, failure)


def test_a_failure_before_the_towers_is_every_towers_failure() -> None:
    job = finish(RUNNING, ExportOutcome(failure=make_failure()), NOW)
    assert job.state is JobState.FAILED
    assert all(tower.failure == make_failure() for tower in job.towers)


def test_a_failure_that_may_pass_is_tried_again() -> None:
    job = finish(RUNNING, ExportOutcome(failure=make_failure(retryable=True)), NOW)
    assert (job.state, job.setbacks) == (JobState.QUEUED, 1)


def test_tables_are_a_stage_of_towers_whose_tables_go_into_shards() -> None:
    user, item = fold_events(RUNNING, [make_event("item", Stage.TABLES)]).towers
    assert Stage.TABLES not in user.stages
    assert item.stages[0] is Stage.TABLES


def test_a_rank_that_helps_with_a_tower_does_not_move_it() -> None:
    at_work = fold_events(RUNNING, [make_event("item", Stage.COMPILE)])
    assert fold_events(at_work, [make_event("item.1", Stage.TABLES)]) == at_work


def test_item_vectors_are_a_stage_once_they_are_made() -> None:
    user, item = fold_events(RUNNING, [make_event("item", Stage.ITEMS)]).towers
    assert Stage.ITEMS not in user.stages
    assert item.stages == tuple(stage for stage in Stage if stage not in (Stage.TABLES, Stage.RELEASE))
    published = fold_events(
        RUNNING,
        [make_event("item", Stage.ITEMS, kind="finished", seconds=2.0), make_event("item", Stage.PUBLISH)],
    ).towers[1]
    assert published.stages.index(Stage.PUBLISH) == 7
