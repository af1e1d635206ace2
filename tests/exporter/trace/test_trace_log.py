from pathlib import Path

from exporter.trace.trace_log import log_nodes, read_last_node
from tests.exporter.passes.conftest import TrueThenFalse, traced


def test_every_node_is_written_with_its_time(tmp_path: Path) -> None:
    file = tmp_path / "nodes.txt"
    with log_nodes(file) as log:
        traced(TrueThenFalse())
    lines = file.read_text().splitlines()
    assert len(lines) == log.nodes >= 5
    assert read_last_node(file) == lines[-1].partition("  ")[2]
    assert any("aten.add.Tensor" in line for line in lines)


def test_the_slowest_nodes_are_told_with_their_lines(tmp_path: Path) -> None:
    with log_nodes(tmp_path / "nodes.txt") as log:
        traced(TrueThenFalse())
    told = log.summary()
    times = [slow.seconds for slow in told.slowest]
    assert times == sorted(times, reverse=True) and sum(times) <= told.seconds + 0.001
    assert {slow.place.partition(":")[0] for slow in told.slowest if slow.operator == "aten.add.Tensor"} == {
        "exporter/passes/conftest.py"
    }


def test_without_a_trace_there_is_no_last_node(tmp_path: Path) -> None:
    assert read_last_node(tmp_path / "none.txt") == ""
