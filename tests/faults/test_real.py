"""Faults at every stage of attempts that export a recorded model, and of light ones."""

from collections.abc import Iterator

import pytest

from tests.faults.cells import DISK_CELLS, LIGHT_CELLS, REAL_CELLS, Cell, run
from tests.faults.commands import has_mounts
from tests.faults.conftest import light_spec, real_spec
from tests.faults.stack import FaultStack, fault_stack

pytestmark = pytest.mark.faults


@pytest.fixture(scope="module")
def cramped(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FaultStack]:
    """A stack whose worker has a small disk."""
    if not has_mounts():
        pytest.skip("this kernel gives no mount namespaces, and so no small disk")
    folder = tmp_path_factory.mktemp("f") / "s"
    with fault_stack(folder, "real", workers=1, small_disk=True) as stack:
        yield stack


@pytest.mark.parametrize("cell", REAL_CELLS, ids=str)
def test_nothing_is_lost(real: FaultStack, cell: Cell) -> None:
    assert run(cell, real, real_spec(real)).broken == ()


@pytest.mark.parametrize("cell", DISK_CELLS, ids=str)
def test_nothing_is_lost_where_a_disk_is_full(cramped: FaultStack, cell: Cell) -> None:
    assert run(cell, cramped, real_spec(cramped)).broken == ()


@pytest.mark.parametrize("cell", LIGHT_CELLS, ids=str)
def test_nothing_is_lost_around_an_attempt(light: FaultStack, cell: Cell) -> None:
    assert run(cell, light, light_spec(light)).broken == ()
