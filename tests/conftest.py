"""What every test shares: one folder for what compilers can keep between packages, and logging as it was."""

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

pytest_plugins = ["tests.chromium", "tests.installed_families", "tests.s3_server"]

CACHE_VARIABLE = "TORCHINDUCTOR_CACHE_DIR"
CODE_CACHE_VARIABLE = "SLIPWAY_CODE_CACHE"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--loopback",
        action="store_true",
        help="two hosts are two addresses of the loopback range, as where the kernel refuses namespaces",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Instruction-set probes and compiled headers are paid by `make install`, or once per session."""
    # In a script's background it would ignore interrupts, and so would all that tests start to interrupt.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGQUIT, signal.SIG_DFL)
    if CACHE_VARIABLE not in os.environ:
        os.environ[CACHE_VARIABLE] = tempfile.mkdtemp(prefix="slipway-tests-")
        copy_precompiled(compiler_folder(), Path(os.environ[CACHE_VARIABLE]))
        config.add_cleanup(lambda: shutil.rmtree(os.environ.pop(CACHE_VARIABLE), ignore_errors=True))
    os.environ[CODE_CACHE_VARIABLE] = tempfile.mkdtemp(prefix="slipway-code-")  # never the user's own
    config.add_cleanup(lambda: shutil.rmtree(os.environ.pop(CODE_CACHE_VARIABLE), ignore_errors=True))


@pytest.fixture(autouse=True)
def logging_as_it_was() -> Iterator[None]:
    """A program that a test runs here may log to the test's own stderr, which ends with the test."""
    root = logging.getLogger()
    handlers, level = root.handlers, root.level
    yield
    root.handlers = handlers
    root.setLevel(level)
