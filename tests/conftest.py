"""Fixtures and settings of every test: caches that one run shares, slow files first, logging put back."""

import logging
import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from processes.settings import compiler_folder
from worker.machine.compiler_files import copy_precompiled

pytest_plugins = ["tests.chromium", "tests.installed_families", "tests.s3_server", "tests.stores.emulators"]

CACHE_VARIABLE = "TORCHINDUCTOR_CACHE_DIR"
CODE_CACHE_VARIABLE = "SLIPWAY_CODE_CACHE"
CHECKS_VARIABLE = "AOTI_RUNTIME_CHECK_INPUTS"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--loopback",
        action="store_true",
        help="two hosts are two addresses of the loopback range, as where the kernel refuses namespaces",
    )
    parser.addoption("--pictures", type=Path, help="folder for the pictures that the browser's tests take")


def pytest_configure(config: pytest.Config) -> None:
    """Set up the caches of this run: probed instruction sets and compiled headers, and the code cache.

    Headers are compiled by `make install`, or once per run. Processes of pytest-xdist share what the process
    that started them has set up.
    """
    # In a script's background it would ignore interrupts, and so would all that tests start to interrupt.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGQUIT, signal.SIG_DFL)
    if hasattr(config, "workerinput"):
        return
    # Threads of torch that wait for work would spin, and take the cores that the other processes need. Their
    # number, which compiled code depends on, stays as it is.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    if CACHE_VARIABLE not in os.environ:
        os.environ[CACHE_VARIABLE] = tempfile.mkdtemp(prefix="slipway-tests-")
        copy_precompiled(compiler_folder(), Path(os.environ[CACHE_VARIABLE]))
        config.add_cleanup(lambda: shutil.rmtree(os.environ.pop(CACHE_VARIABLE), ignore_errors=True))
    os.environ[CODE_CACHE_VARIABLE] = tempfile.mkdtemp(prefix="slipway-code-")  # never the user's own
    config.add_cleanup(lambda: shutil.rmtree(os.environ.pop(CODE_CACHE_VARIABLE), ignore_errors=True))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put files with slow tests first, so that processes that take a file at a time end together."""
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: item.path not in slow)


@pytest.fixture(scope="module", autouse=True)
def _input_checks_put_back() -> Iterator[None]:
    """Take back the variable that `slipway.loader` sets for its process: other files call without checks."""
    before = os.environ.get(CHECKS_VARIABLE)
    yield
    if before is None:
        os.environ.pop(CHECKS_VARIABLE, None)


@pytest.fixture(scope="session")
def run_folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that all processes of this run have in common; see `tests.shared`."""
    base = tmp_path_factory.getbasetemp()  # pytest-xdist gives each process one below the run's
    folder = (base.parent if hasattr(request.config, "workerinput") else base) / "shared"
    folder.mkdir(exist_ok=True)
    return folder


@pytest.fixture(autouse=True)
def restored_logging() -> Iterator[None]:
    """Put logging back as it was: a program run by a test may log to a stderr that ends with the test."""
    root = logging.getLogger()
    handlers, level = root.handlers, root.level
    yield
    root.handlers = handlers
    root.setLevel(level)
