"""The fast part: faults in attempts that export nothing, but read, publish and report as real ones do."""

import pytest

from exporter.stages import Stage
from tests.faults.cells import DISK_CELLS, LIGHT_CELLS, REAL_CELLS, Cell, Point, run
from tests.faults.conftest import light_spec
from tests.faults.stack import FaultStack

HALF = Point(Stage.PUBLISH, "progress")
CELLS = [
    Cell("kill -9 of the worker", HALF),
    Cell("Redis killed and restarted", Point(Stage.TRACE)),
    Cell("clock an hour ahead", HALF),
    Cell("S3 damages a file", Point(Stage.PUBLISH)),
]
LONGER = [
    Cell("worker stands still", HALF),
    Cell("Redis cut off", Point(Stage.PUBLISH)),
    Cell("job given to two, thrice", Point(Stage.CONFIG)),
]
MARKED = [*CELLS, *(pytest.param(cell, marks=pytest.mark.faults) for cell in LONGER)]


@pytest.mark.slow
@pytest.mark.parametrize("cell", MARKED, ids=str)
def test_nothing_is_lost(light: FaultStack, cell: Cell) -> None:
    result = run(cell, light, light_spec(light))
    assert result.broken == ()


def test_everything_is_more_than_forty_cells() -> None:
    cells = [(cell.fault, str(cell.point)) for cell in (*REAL_CELLS, *LIGHT_CELLS, *DISK_CELLS)]
    assert len(set(cells)) >= 40
