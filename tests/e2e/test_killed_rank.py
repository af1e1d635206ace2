"""A rank that is killed ends the attempt on all ranks, whatever they are at: no hang, and nothing left."""

import os
import signal
import sys
import threading
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import psutil
import pytest

from exporter.spec import TowerName
from exporter.stages import Stage
from jobs.diagnostics.logs import MemoryLogs
from jobs.lease.leases import claim
from jobs.model import Job, JobState, TowerProgress
from jobs.spec import JobSpec
from jobs.stores.memory_store import MemoryJobStore
from tests.e2e.conftest import sharded_spec
from tests.faults.holding import Held, Hold, HoldFolder
from tests.faults.programs import wait_until
from tests.jobs.factories import make_job
from worker.environment.attempt_environment import AttemptEnvironment
from worker.launch import CommandLauncher
from worker.settings import AttemptEnvironmentSettings
from worker.supervisor import Supervisor

pytestmark = [pytest.mark.slow, pytest.mark.ranks]

HOUR = timedelta(hours=1)
STAGES = [stage for stage in Stage if stage is not Stage.ITEMS]  # which nobody asked for


def rank_of(held: Held) -> psutil.Process:
    """The rank to which a process at work on a tower, or on its tables, belongs."""
    parents = psutil.Process(held.pid).parents()
    return next(process for process in parents if process.name().startswith("rank "))


@pytest.mark.parametrize("stage", STAGES)
def test_a_killed_rank_ends_the_attempt_cleanly(stage: Stage, tmp_path: Path) -> None:
    end_cleanly(Hold(stage=stage), tmp_path)


@pytest.mark.parametrize(("rank", "tower"), [(0, "item"), (1, "item.1")])
def test_so_does_each_that_writes_rows(rank: int, tower: str, tmp_path: Path) -> None:
    assert end_cleanly(Hold(stage=Stage.TABLES, kind="finished", tower=tower), tmp_path) == rank


def test_so_does_one_for_which_another_waits_where_all_meet(tmp_path: Path) -> None:
    assert end_cleanly(Hold(stage=Stage.ROWS), tmp_path, once=lambda: all_but_one_wait(tmp_path)) == 0


def test_so_does_the_one_that_waits_there(tmp_path: Path) -> None:
    hold = Hold(stage=Stage.ROWS)
    assert end_cleanly(hold, tmp_path, once=lambda: all_but_one_wait(tmp_path), other=True) == 1


def all_but_one_wait(folder: Path) -> bool:
    return bool(list((folder / "work").rglob("meeting")))


def end_cleanly(
    where: Hold, tmp_path: Path, *, once: Callable[[], bool] = lambda: True, other: bool = False
) -> int:
    """Kill the rank that is held there, or the other one, once that may be; look at what is left.

    Returns which it was.
    """
    hold, store = HoldFolder(tmp_path), MemoryJobStore()
    hold.ask(where)
    spec = sharded_spec(tmp_path / "out")
    job = make_job().model_copy(
        update={"spec": JobSpec.of(spec), "towers": (TowerProgress(name=TowerName.ITEM),)}
    )
    store.add(job, spec.config)
    holding = claim(store, job.id, worker="w1", length=HOUR)
    assert holding is not None
    supervisor = Supervisor(
        CommandLauncher(
            (sys.executable, "-m", "tests.e2e.held_ranks", str(tmp_path)),
            AttemptEnvironment(settings=AttemptEnvironmentSettings()),
        ),
        worker_dir=tmp_path / "work",
        time_limit=HOUR,
        logs=MemoryLogs(),
    )
    ended: list[Job | None] = []
    running = threading.Thread(target=lambda: ended.append(supervisor.run(holding)), daemon=True)
    running.start()
    wait_until(f"a rank is at {where.stage}", hold.held, 240)
    wait_until("the other rank is where it is to be", once, 120)
    held = hold.held()
    assert held is not None
    rank = rank_of(held)
    family = rank.parents()[0].children(recursive=True)
    if other:
        [rank] = [each for each in family if each.name().startswith("rank ") and each != rank]
    number = rank.name().removeprefix("rank ")
    os.kill(rank.pid, signal.SIGKILL)
    running.join(60)  # the other rank is held for longer, and its stages may take hours
    assert ended, "the attempt hangs"
    [found] = ended
    assert found is not None and found.failure is not None
    assert (found.state, found.failure.code) == (JobState.QUEUED, "attempt_failed")
    assert f"rank {number} was killed by SIGKILL" in found.failure.message
    assert not [process for process in family if process.is_running()]
    assert not list((tmp_path / "work").iterdir())
    assert not list((tmp_path / "out").rglob("manifest.json"))
    return int(number)
