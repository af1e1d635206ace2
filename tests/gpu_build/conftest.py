"""Packages for a GPU, built without one; run by `make gpu-build`, with the build of torch for CUDA."""

import importlib.util
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest
import torch

from tests.gpu.cases import CASES, Case, request_of
from tests.gpu_build.driver import write_driver
from tests.gpu_build.package import TARGET, Built

_HERE = Path(__file__).parent
_LAST_WORDS = 4000


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip all of this folder where torch is built for CPUs alone."""
    for item in items:
        if _HERE in item.path.parents and torch.version.cuda is None:
            item.add_marker(pytest.mark.skip(reason="needs torch's build for CUDA: make gpu-build"))


@pytest.fixture(scope="session")
def toolkit() -> Path:
    """The folder of CUDA's headers, as wheels lay them down."""
    spec = importlib.util.find_spec("nvidia")
    assert spec is not None and spec.submodule_search_locations
    [found] = {
        header.parents[2]
        for place in spec.submodule_search_locations
        for header in Path(place).glob("*/include/crt/host_defines.h")
    }
    return found


@pytest.fixture(scope="session")
def driver(toolkit: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a driver that finds no device."""
    return write_driver(toolkit / "include", tmp_path_factory.mktemp("driver"))


@pytest.fixture(scope="session")
def all_built(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, toolkit: Path, driver: Path
) -> Iterator[dict[Case, Future[list[Built]]]]:
    """The packages of every case that a test of this session is about."""
    asked = (getattr(item, "callspec", None) for item in request.session.items)
    wanted = {each.params["case"] for each in asked if each is not None and "case" in each.params}
    folder = tmp_path_factory.mktemp("packages")
    pool = ThreadPoolExecutor(2)
    yield {
        case: pool.submit(build, case, folder / case.name, toolkit, driver)
        for case in CASES
        if case in wanted
    }
    pool.shutdown(cancel_futures=True)


@pytest.fixture
def packages(case: Case, all_built: dict[Case, Future[list[Built]]]) -> list[Built]:
    """The packages of a test's case, once they are built."""
    return all_built[case].result()


@pytest.fixture(scope="session")
def loads(driver: Path) -> Callable[[Path], str]:
    """Load a library with all that it needs; the error is returned as text, empty if there is none."""

    def load(library: Path) -> str:
        code = f"import ctypes, os, torch; ctypes.CDLL({str(library)!r}, mode=os.RTLD_NOW)"
        command = ["env", f"LD_LIBRARY_PATH={driver}", sys.executable, "-W", "ignore", "-c", code]
        told = subprocess.run(command, capture_output=True, text=True, check=False)
        return told.stderr[-_LAST_WORDS:] if told.returncode else ""

    return load


def build(case: Case, folder: Path, toolkit: Path, driver: Path) -> list[Built]:
    """Build a case below `folder`, in a process of its own."""
    folder.mkdir()
    spec = folder / "spec.json"
    spec.write_text(json.dumps({**request_of(case, folder), "target": TARGET}))
    # Kernels are compiled in the process that pretends, and not in helpers that do not.
    places = (f"CUDA_HOME={toolkit}", f"LIBRARY_PATH={driver}", "TORCHINDUCTOR_COMPILE_THREADS=1")
    command = [sys.executable, "-W", "ignore", "-m", "tests.gpu_build.building", str(spec), str(folder)]
    told = subprocess.run(["env", *places, *command], capture_output=True, text=True, check=False)
    assert told.returncode == 0, told.stderr[-_LAST_WORDS:]
    return [Built.of(line) for line in (folder / "built.jsonl").read_text().splitlines()]
