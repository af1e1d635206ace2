"""A supervisor of attempts by fake ranks, on a store in memory."""

import logging
import sys
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import pytest
import structlog

from jobs.diagnostics.bundles import Bundles
from jobs.diagnostics.logs import MemoryLogs
from jobs.lease.leases import Holding, claim
from jobs.stores.memory_store import MemoryJobStore
from tests.jobs.factories import CONFIG_TEXT, MINUTE, make_job
from worker.environment.attempt_environment import AttemptEnvironment
from worker.launch import CommandLauncher
from worker.settings import AttemptEnvironmentSettings
from worker.supervisor import Supervisor

MakeSupervisor = Callable[..., Supervisor]
ATTEMPT_ENVIRONMENT = AttemptEnvironment(settings=AttemptEnvironmentSettings())


@pytest.fixture
def pids(tmp_path: Path) -> Path:
    """The file in which a hanging stand-in writes the numbers of its processes."""
    return tmp_path / "pids"


@pytest.fixture
def worker_dir(tmp_path: Path) -> Path:
    return tmp_path / "work"


@pytest.fixture
def logs() -> MemoryLogs:
    return MemoryLogs()


@pytest.fixture
def make_supervisor(worker_dir: Path, pids: Path, logs: MemoryLogs) -> MakeSupervisor:
    def make(
        behaviour: str,
        *,
        time_limit: timedelta = MINUTE,
        bundles: Bundles | None = None,
        poll_s: float = 0.05,
    ) -> Supervisor:
        command = (sys.executable, "-m", "tests.worker.fake_ranks", behaviour, str(pids))
        return Supervisor(
            CommandLauncher(command, ATTEMPT_ENVIRONMENT),
            worker_dir=worker_dir,
            time_limit=time_limit,
            logs=logs,
            bundles=bundles,
            poll_s=poll_s,
        )

    return make


@pytest.fixture
def restored_logging() -> Iterator[None]:
    """Restore the root logger after a test has configured it."""
    root = logging.getLogger()
    before = root.handlers, root.level
    yield
    root.handlers, root.level = list(before[0]), before[1]
    structlog.reset_defaults()


@pytest.fixture
def store() -> MemoryJobStore:
    return MemoryJobStore()


@pytest.fixture
def holding(store: MemoryJobStore) -> Holding:
    job = make_job()
    store.add(job, CONFIG_TEXT)
    holding = claim(store, job.id, worker="w1", length=MINUTE)
    assert holding is not None
    return holding
