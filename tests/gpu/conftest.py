"""What runs on a GPU; without one it is skipped, and counted as such.

Nothing here needs more than torch and pytest to be imported, so that a GPU machine can run a part of it.
"""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch

from tests.gpu.cases import CASES, Case, Made, made

_AT_A_TIME = 6
_HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark all of this folder, and skip it where there is no device."""
    for item in items:
        if _HERE in item.path.parents:
            item.add_marker(pytest.mark.gpu)
            if not torch.cuda.is_available():
                item.add_marker(pytest.mark.skip(reason="needs a CUDA device, and there is none here"))


@pytest.fixture(scope="session")
def exports(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[Case, Made]]:
    """Every case that a test of this session is about, exported; several at a time."""
    wanted = {
        item.callspec.params["case"]
        for item in request.session.items
        if isinstance(item, pytest.Function) and hasattr(item, "callspec") and "case" in item.callspec.params
    }
    folder = tmp_path_factory.mktemp("exports")
    with ThreadPoolExecutor(_AT_A_TIME) as pool:
        cases = [case for case in CASES if case in wanted]
        found = pool.map(lambda case: made(case, folder / case.name, folder / "compiler"), cases)
        yield dict(zip(cases, found, strict=True))


@pytest.fixture
def export(case: Case, exports: dict[Case, Made]) -> Made:
    """The export of a test's case."""
    return exports[case]
