"""A whole stack of programs whose attempts are run by fake ranks."""

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

from launcher.up import Stack, running_stack

MakeStack = Callable[[str], AbstractContextManager[Stack]]


def fake_ranks(behaviour: str, folder: Path) -> dict[str, str]:
    """Settings for programs that waste no time."""
    command = [sys.executable, "-m", "tests.worker.fake_ranks", behaviour, str(folder / "pids")]
    return {
        "SLIPWAY_ATTEMPT_COMMAND": json.dumps(command),
        "SLIPWAY_LEASE": "4",  # ending an attempt takes two seconds, in which the lease is not renewed
        "SLIPWAY_SWEEP_INTERVAL": "0.5",
        "SLIPWAY_HEARTBEAT_INTERVAL": "0.5",
    }


@pytest.fixture(scope="session")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """A stack whose attempts succeed."""
    folder = tmp_path_factory.mktemp("stack")
    with running_stack(folder, environment=fake_ranks("succeed", folder)) as stack:
        yield stack


@pytest.fixture
def make_stack(tmp_path: Path) -> MakeStack:
    @contextmanager
    def make(behaviour: str) -> Iterator[Stack]:
        with running_stack(tmp_path, environment=fake_ranks(behaviour, tmp_path)) as stack:
            yield stack

    return make
