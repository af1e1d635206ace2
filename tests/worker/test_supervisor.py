"""One attempt from start to end, with real processes."""

import io
import re
import threading
import time
import zipfile
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from exporter.spec import TowerName
from exporter.stages import Stage
from jobs.diagnostics.bundles import MemoryBundles
from jobs.diagnostics.logs import MemoryLogs
from jobs.errors import StoreUnavailable
from jobs.ids import JobId
from jobs.lease.leases import Holding, claim, update_job
from jobs.model import Job, JobState, TowerState
from jobs.stores.memory_store import MemoryJobStore
from tests.jobs.factories import MINUTE
from tests.worker.conftest import ATTEMPT_ENVIRONMENT
from worker.launch import CommandLauncher
from worker.supervisor import Supervisor

MakeSupervisor = Callable[..., Supervisor]


def run(supervisor: Supervisor, holding: Holding) -> Job:
    job = supervisor.run(holding)
    assert job is not None
    return job


def is_alive(pid: int) -> bool:
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False


def assert_all_ended(pids: Path) -> None:
    assert [is_alive(int(pid)) for pid in pids.read_text().split()] == [False, False]


def once_hanging(pids: Path, action: Callable[[], object]) -> None:
    """Do something as soon as the fake ranks hang, on another thread."""

    def wait() -> None:
        while not pids.exists() or len(pids.read_text().split()) < 2:
            time.sleep(0.02)
        action()

    threading.Thread(target=wait, daemon=True).start()


def test_an_end_is_seen_at_once_however_seldom_the_record_is_renewed(
    make_supervisor: MakeSupervisor, holding: Holding
) -> None:
    job = run(make_supervisor("succeed", poll_s=600.0), holding)
    assert job.state is JobState.SUCCEEDED


def test_a_finished_attempt_is_recorded(make_supervisor: MakeSupervisor, holding: Holding) -> None:
    job = run(make_supervisor("succeed"), holding)
    assert job.state is JobState.SUCCEEDED
    user = job.towers[0]
    assert (user.state, user.package_uri) == (TowerState.SUCCEEDED, "/out/user")
    assert user.stage_seconds == {Stage.TRACE: 0.5, Stage.COMPILE: 0.5}


def test_progress_shows_while_it_runs(
    make_supervisor: MakeSupervisor, holding: Holding, store: MemoryJobStore
) -> None:
    seen: set[TowerState] = set()
    make_supervisor("succeed").run(
        holding, on_beat=lambda: seen.add(store.get(holding.job.id).towers[0].state)
    )
    assert TowerState.RUNNING in seen


def test_what_the_ranks_write_is_kept_by_tower_and_stage(
    make_supervisor: MakeSupervisor, holding: Holding, logs: MemoryLogs
) -> None:
    run(make_supervisor("succeed"), holding)
    (compiling,) = logs.read(holding.job.id, TowerName.ITEM, Stage.COMPILE)
    assert re.fullmatch(r"\d\d:\d\d:\d\d at work on compile of item", "\n".join(compiling.lines))


def test_a_crashs_last_words_are_kept(
    make_supervisor: MakeSupervisor, holding: Holding, logs: MemoryLogs
) -> None:
    run(make_supervisor("crash"), holding)
    assert logs.read(holding.job.id)[-1].lines[-1].endswith(" boom: no memory left")


def test_of_a_failed_tower_a_bundle_is_kept(make_supervisor: MakeSupervisor, holding: Holding) -> None:
    bundles = MemoryBundles()
    user, item = run(make_supervisor("fail-item", bundles=bundles), holding).towers
    assert user.failure is None and item.failure is not None
    assert item.failure.bundle_url == f"/exports/{holding.job.id}/bundle?tower=item"
    content = bundles.get(holding.job.id, TowerName.ITEM)
    assert content is not None
    with zipfile.ZipFile(io.BytesIO(content)) as bundle:
        assert "at work on compile of item" in bundle.read("log.txt").decode()
        assert b"in _produce" in bundle.read("traceback.txt")


def test_of_a_crash_one_bundle_is_kept(make_supervisor: MakeSupervisor, holding: Holding) -> None:
    bundles = MemoryBundles()
    failure = run(make_supervisor("crash", bundles=bundles), holding).failure
    assert failure is not None and failure.bundle_url == f"/exports/{holding.job.id}/bundle"
    assert bundles.get(holding.job.id, None) is not None


class FullBundles(MemoryBundles):
    """A bundle store that takes no more."""

    def put(self, job_id: JobId, tower: TowerName | None, content: bytes) -> str:
        raise StoreUnavailable(MemoryError())


def test_a_failure_is_told_even_if_its_bundle_cannot_be_kept(
    make_supervisor: MakeSupervisor, holding: Holding
) -> None:
    item = run(make_supervisor("fail-item", bundles=FullBundles()), holding).towers[1]
    assert item.failure is not None and (item.failure.code, item.failure.bundle_url) == ("trace_failed", "")


def test_the_workspace_is_removed(
    make_supervisor: MakeSupervisor, holding: Holding, worker_dir: Path
) -> None:
    run(make_supervisor("crash"), holding)
    assert list(worker_dir.iterdir()) == []


def test_a_crash_is_told_with_the_logs_end(make_supervisor: MakeSupervisor, holding: Holding) -> None:
    job = run(make_supervisor("crash"), holding)
    assert (job.state, job.setbacks) == (JobState.QUEUED, 1)
    assert job.failure is not None and "boom: no memory left" in job.failure.message


@pytest.mark.parametrize("behaviour", ["silent", "garble"])
def test_an_attempt_without_an_outcome_has_broken(
    make_supervisor: MakeSupervisor, holding: Holding, behaviour: str
) -> None:
    failure = run(make_supervisor(behaviour), holding).failure
    assert failure is not None and failure.code == "attempt_failed" and "outcome" in failure.message


def test_an_attempt_has_its_own_tmpdir_and_no_access_to_redis(
    holding: Holding, worker_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLIPWAY_REDIS_URL", "redis://secret")
    tell = CommandLauncher(
        ("/bin/sh", "-c", "echo $TMPDIR $OMP_NUM_THREADS ${SLIPWAY_REDIS_URL-none}; exit 1"),
        ATTEMPT_ENVIRONMENT,
    )
    failure = run(
        Supervisor(tell, worker_dir=worker_dir, time_limit=MINUTE, logs=MemoryLogs()), holding
    ).failure
    assert failure is not None
    tmp, threads, redis_url = failure.message.splitlines()[-1].split()
    assert (Path(tmp).parents[1], Path(tmp).name, redis_url) == (worker_dir, "tmp", "none")
    assert int(threads) >= 1


def test_attempts_share_what_the_compiler_learns_of_the_machine(
    holding: Holding, worker_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TORCHINDUCTOR_CACHE_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    tell = CommandLauncher(("/bin/sh", "-c", "echo $TORCHINDUCTOR_CACHE_DIR; exit 1"), ATTEMPT_ENVIRONMENT)
    failure = run(
        Supervisor(tell, worker_dir=worker_dir, time_limit=MINUTE, logs=MemoryLogs()), holding
    ).failure
    assert failure is not None
    assert failure.message.splitlines()[-1] == str(tmp_path / "slipway" / "compiler")


def test_a_hanging_attempt_is_ended(make_supervisor: MakeSupervisor, holding: Holding, pids: Path) -> None:
    job = run(make_supervisor("hang", time_limit=timedelta(seconds=4)), holding)
    assert job.state is JobState.FAILED
    assert job.failure is not None and job.failure.code == "attempt_timed_out"
    assert_all_ended(pids)


def test_a_cancel_ends_all_processes_within_five_seconds(
    make_supervisor: MakeSupervisor, holding: Holding, store: MemoryJobStore, pids: Path
) -> None:
    asked: list[float] = []

    def cancel() -> None:
        update_job(store, holding.job.id, lambda job, now: job.request_cancel(now))
        asked.append(time.monotonic())

    once_hanging(pids, cancel)
    assert run(make_supervisor("hang"), holding).state is JobState.CANCELLED
    assert time.monotonic() - asked[0] < 5
    assert_all_ended(pids)


def sent_by(holding: Holding, folder: Path) -> tuple[Holding, Path]:
    """Return the holding of a job whose artifact belongs below `folder`, with one uploaded file."""
    spec = holding.job.spec.model_copy(update={"output_uri": str(folder)})
    sent = folder / holding.job.id / "user" / "fg.json"
    sent.parent.mkdir(parents=True)
    sent.write_text("sent")
    return replace(holding, job=holding.job.model_copy(update={"spec": spec})), sent


def test_what_a_cancelled_attempt_had_sent_is_removed(
    make_supervisor: MakeSupervisor, holding: Holding, store: MemoryJobStore, pids: Path, tmp_path: Path
) -> None:
    holding, sent = sent_by(holding, tmp_path / "out")
    once_hanging(pids, lambda: update_job(store, holding.job.id, lambda job, now: job.request_cancel(now)))
    assert run(make_supervisor("hang"), holding).state is JobState.CANCELLED
    assert not sent.exists()


def test_what_was_sent_is_left_to_who_has_the_lease(
    make_supervisor: MakeSupervisor, holding: Holding, store: MemoryJobStore, pids: Path, tmp_path: Path
) -> None:
    holding, sent = sent_by(holding, tmp_path / "out")

    def take_away() -> None:
        update_job(store, holding.job.id, lambda job, now: job.hand_back(now))
        claim(store, holding.job.id, worker="w2", length=MINUTE)

    once_hanging(pids, take_away)
    assert make_supervisor("hang").run(holding) is None
    assert sent.exists()


def test_a_worker_that_leaves_hands_its_job_back(
    make_supervisor: MakeSupervisor, holding: Holding, pids: Path
) -> None:
    supervisor = make_supervisor("hang")
    once_hanging(pids, supervisor.stop)
    job = run(supervisor, holding)
    assert (job.state, job.setbacks) == (JobState.QUEUED, 0)
    assert_all_ended(pids)


def test_an_attempt_whose_lease_is_lost_is_ended(
    make_supervisor: MakeSupervisor, holding: Holding, store: MemoryJobStore, pids: Path
) -> None:
    def take_away() -> None:
        update_job(store, holding.job.id, lambda job, now: job.hand_back(now))
        claim(store, holding.job.id, worker="w2", length=MINUTE)

    once_hanging(pids, take_away)
    assert make_supervisor("hang").run(holding) is None
    assert store.get(holding.job.id).attempt == 2
    assert_all_ended(pids)


def test_the_lease_is_renewed(
    make_supervisor: MakeSupervisor, holding: Holding, store: MemoryJobStore
) -> None:
    ends: set[object] = set()
    impatient = replace(holding, length=MINUTE * 2)  # so that a lease of one minute is due for renewal
    make_supervisor("succeed").run(impatient, lambda: ends.add(store.get(holding.job.id).lease))
    assert len(ends) == 1 and holding.job.lease not in ends
