"""States, moves and ids."""

import pytest

from jobs.errors import IllegalMove, JobFinished, LeaseLost
from jobs.ids import is_job_id, new_job_id
from jobs.model import MAX_SETBACKS, MOVES, Job, JobState, Lease, TowerState
from tests.jobs.factories import MINUTE, NOW, make_failure, make_job

FINAL = [state for state in JobState if state.is_final]


def test_every_unfinished_state_has_moves() -> None:
    assert set(MOVES) == {JobState.QUEUED, JobState.RUNNING}


@pytest.mark.parametrize("state", FINAL)
@pytest.mark.parametrize("target", list(JobState))
def test_a_finished_job_moves_nowhere(state: JobState, target: JobState) -> None:
    with pytest.raises(IllegalMove, match=f"a {state} job cannot become {target}"):
        make_job(state).move_to(target, NOW)


def test_a_claimed_job_counts_an_attempt_and_forgets_the_last_ones_progress() -> None:
    job = make_job(attempt=1).begin_attempt(Lease(worker="w", until=NOW + MINUTE), "cpu", NOW)
    assert (job.state, job.attempt, job.started_at) == (JobState.RUNNING, 2, NOW)


def test_leaving_running_gives_up_the_lease() -> None:
    assert make_job(JobState.RUNNING).hand_back(NOW).lease is None


@pytest.mark.parametrize(("worker", "attempt"), [("w2", 1), ("w1", 2)])
def test_a_job_is_held_by_one_attempt_of_one_worker(worker: str, attempt: int) -> None:
    with pytest.raises(LeaseLost):
        make_job(JobState.RUNNING, attempt=1).require_held_by(worker, attempt)


def test_a_queued_job_is_cancelled_at_once() -> None:
    job = make_job().request_cancel(NOW)
    assert (job.state, job.finished_at) == (JobState.CANCELLED, NOW)


def test_a_running_job_is_asked_to_stop() -> None:
    job = make_job(JobState.RUNNING).request_cancel(NOW)
    assert (job.state, job.cancel_requested) == (JobState.RUNNING, True)


@pytest.mark.parametrize("state", FINAL)
def test_a_finished_job_cannot_be_cancelled(state: JobState) -> None:
    with pytest.raises(JobFinished, match="already ended: it is "):
        make_job(state).request_cancel(NOW)


def test_a_job_that_was_to_stop_is_not_queued_again() -> None:
    job = make_job(JobState.RUNNING).request_cancel(NOW).hand_back(NOW)
    assert (job.state, job.has_expired(NOW + MINUTE)) == (JobState.QUEUED, True)


def test_setbacks_are_capped() -> None:
    job: Job = make_job()
    for number in range(MAX_SETBACKS):
        assert job.state is JobState.QUEUED, number
        running = job.begin_attempt(Lease(worker="w", until=NOW), "cpu", NOW)
        job = running.set_back(make_failure(retryable=True), NOW)
    assert job.state is JobState.FAILED
    assert job.failure is not None and "gave up after 3 attempts" in job.failure.message


def test_every_pause_is_longer_than_the_last() -> None:
    first = make_job(JobState.RUNNING).set_back(make_failure(retryable=True), NOW, MINUTE)
    again = first.begin_attempt(Lease(worker="w", until=NOW), "cpu", NOW)
    second = again.set_back(make_failure(retryable=True), NOW, MINUTE)
    assert (first.not_before, again.not_before, second.not_before) == (NOW + MINUTE, None, NOW + 4 * MINUTE)


def test_handing_back_is_not_a_setback() -> None:
    assert make_job(JobState.RUNNING).hand_back(NOW).setbacks == 0


def test_a_failure_that_would_repeat_is_final_at_once() -> None:
    assert make_job(JobState.RUNNING).set_back(make_failure(), NOW).state is JobState.FAILED


def test_ids_are_valid_and_differ() -> None:
    ids = {new_job_id() for _ in range(1000)}
    assert len(ids) == 1000
    assert all(is_job_id(each) for each in ids)
    assert not is_job_id("../etc/passwd")


def test_a_later_id_sorts_after_an_earlier_one(monkeypatch: pytest.MonkeyPatch) -> None:
    earlier = new_job_id()
    monkeypatch.setattr("time.time_ns", lambda: 4_000_000_000 * 10**9)
    assert new_job_id() > earlier


def test_a_failed_job_has_no_running_towers() -> None:
    running = make_job(JobState.RUNNING)
    towers = tuple(tower.model_copy(update={"state": TowerState.RUNNING}) for tower in running.towers)
    job = running.model_copy(update={"towers": towers}).fail(make_failure(), NOW)
    assert {(tower.state, tower.failure) for tower in job.towers} == {(TowerState.FAILED, make_failure())}


def _with_towers(*states: TowerState) -> Job:
    running = make_job(JobState.RUNNING)
    towers = zip(running.towers, states, strict=True)
    changed = tuple(tower.model_copy(update={"state": state}) for tower, state in towers)
    return running.model_copy(update={"towers": changed})


def test_towers_of_a_queued_job_are_at_rest() -> None:
    job = _with_towers(TowerState.RUNNING, TowerState.RUNNING).move_to(JobState.QUEUED, NOW)
    assert {tower.state for tower in job.towers} == {TowerState.WAITING}


@pytest.mark.parametrize("state", [TowerState.WAITING, TowerState.RUNNING])
def test_towers_of_a_cancelled_job_are_cancelled_but_for_those_that_had_ended(state: TowerState) -> None:
    job = _with_towers(state, TowerState.FAILED).move_to(JobState.CANCELLED, NOW)
    assert [tower.state for tower in job.towers] == [TowerState.CANCELLED, TowerState.FAILED]
