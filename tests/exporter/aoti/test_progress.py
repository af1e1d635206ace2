"""What tracing and compiling tell on their way, and that it changes nothing."""

import pytest

from exporter.stages import throttle_progress
from exporter.towers.tower import Tower
from exporter.trace.capture import capture_tower
from tests.exporter.aoti.conftest import Compiled
from tests.exporter.verify.conftest import clicks, tower

__all__ = ["tower"]


class Told:
    """A listener that keeps everything."""

    def __init__(self) -> None:
        self.details: list[str] = []

    def __call__(self, fraction: float | None, detail: str) -> None:
        self.details.append(detail)


def test_every_traced_node_is_counted_and_the_program_is_the_same(tower: Tower) -> None:
    told, inputs = Told(), clicks(3, 0, 4)
    counted, plain = capture_tower(tower, inputs, told), capture_tower(tower, inputs)
    numbers = [int(detail.split()[0]) for detail in told.details]
    assert numbers == list(range(1, len(numbers) + 1))
    assert len(numbers) == pytest.approx(len(counted.graph.nodes), rel=0.3)
    assert counted.graph_module.code == plain.graph_module.code


def test_every_compiled_file_is_counted(compiled: Compiled) -> None:
    files = [int(detail.split()[0]) for detail in compiled.details]
    assert files == list(range(1, len(files) + 1)) and len(files) >= 3


def test_people_are_told_seldom() -> None:
    told = Told()
    tell = throttle_progress(told)
    for number in range(1000):
        tell(None, str(number))
    assert told.details == ["0"]
