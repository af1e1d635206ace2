"""Fixtures of the tests that need a GPU; without one these are skipped.

Nothing here needs more than torch and pytest to be imported, so that a GPU machine can run a part of it.
"""

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch

from tests.gpu.cases import CASES, Case, made

if TYPE_CHECKING:
    from benchmarks.gpu.export_process import ExportResult

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
) -> Iterator[dict[Case, Future["ExportResult"]]]:
    """The exports of every case that a test of this session is about; several at a time."""
    asked = (
        item.callspec.params.get("case")
        for item in request.session.items
        if isinstance(item, pytest.Function) and hasattr(item, "callspec")
    )
    wanted = {case for case in asked if isinstance(case, Case)}
    folder = tmp_path_factory.mktemp("exports")
    pool = ThreadPoolExecutor(_AT_A_TIME)
    yield {
        case: pool.submit(made, case, folder / case.name, folder / "compiler")
        for case in CASES
        if case in wanted
    }
    pool.shutdown(cancel_futures=True)


@pytest.fixture
def export(case: Case, exports: dict[Case, Future["ExportResult"]]) -> "ExportResult":
    """The export of a test's case, once it is done."""
    return exports[case].result()
