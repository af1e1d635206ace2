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
from jobs.leases import claim
from jobs.logs import MemoryLogs
from jobs.memory_store import MemoryJobStore
from jobs.model import Job, JobState, TowerProgress
from tests.e2e.conftest import sharded_spec
from tests.faults.holding import Held, Hold, HoldFolder
from tests.faults.programs import wait_until
from tests.jobs.factories import make_job
from worker.allowance import Allowance
from worker.launch import CommandLauncher
from worker.settings import AllowanceSettings
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
    end_cleanly(stage, tmp_path)


def test_so_does_one_for_which_another_waits_where_all_meet(tmp_path: Path) -> None:
    end_cleanly(Stage.ROWS, tmp_path, once=lambda: bool(list((tmp_path / "work").rglob("meeting"))))


def end_cleanly(stage: Stage, tmp_path: Path, *, once: Callable[[], bool] = lambda: True) -> None:
    """Kill the rank that is held at a stage, once that may be, and look at what is left."""
    hold, store = HoldFolder(tmp_path), MemoryJobStore()
    hold.ask(Hold(stage=stage))
    job = make_job().model_copy(
        update={"spec": sharded_spec(tmp_path / "out"), "towers": (TowerProgress(name=TowerName.ITEM),)}
    )
    store.add(job)
    holding = claim(store, job.id, worker="w1", length=HOUR)
    assert holding is not None
    supervisor = Supervisor(
        CommandLauncher(
            (sys.executable, "-m", "tests.e2e.held_ranks", str(tmp_path)),
            Allowance(settings=AllowanceSettings()),
        ),
        worker_dir=tmp_path / "work",
        time_limit=HOUR,
        logs=MemoryLogs(),
    )
    ended: list[Job | None] = []
    running = threading.Thread(target=lambda: ended.append(supervisor.run(holding)), daemon=True)
    running.start()
    wait_until(f"a rank is at {stage}", hold.held, 240)
    wait_until("the other rank is where it is to be", once, 120)
    held = hold.held()
    assert held is not None
    rank = rank_of(held)
    family = rank.parents()[0].children(recursive=True)
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
