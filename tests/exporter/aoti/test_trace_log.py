from pathlib import Path

from exporter.aoti.trace_log import last_node, nodes_logged
from tests.exporter.passes.conftest import TrueThenFalse, traced


def test_every_node_is_written_with_its_time(tmp_path: Path) -> None:
    file = tmp_path / "nodes.txt"
    with nodes_logged(file) as log:
        traced(TrueThenFalse())
    lines = file.read_text().splitlines()
    assert len(lines) == log.nodes >= 5
    assert log.seconds >= log.slowest[0][0] >= log.slowest[-1][0] >= 0
    assert last_node(file) == lines[-1].partition("  ")[2]
    assert any("aten.add.Tensor" in line for line in lines)


def test_without_a_trace_there_is_no_last_node(tmp_path: Path) -> None:
    assert last_node(tmp_path / "none.txt") == ""
