"""Log each graph node that a trace creates, with its time, while the trace runs."""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from torch.fx import Node

from exporter.aoti.torch_private import observe_nodes
from exporter.manifest import SlowNode, TraceTime
from exporter.trace.source_line import source_line_of

_SLOWEST = 8


@dataclass
class TraceLog:
    """The number of nodes of a trace so far, their total time in seconds, and the slowest nodes.

    The time of a node is the time since the node before it.
    """

    nodes: int = 0
    seconds: float = 0.0
    slowest: list[tuple[float, Node]] = field(default_factory=list)  # the slowest first

    def add(self, node: Node, seconds: float) -> None:
        self.nodes += 1
        self.seconds += seconds
        slowest = sorted([*self.slowest, (seconds, node)], key=lambda each: each[0], reverse=True)
        self.slowest = slowest[:_SLOWEST]

    def summary(self) -> TraceTime:
        """Return the totals and the slowest nodes, with the lines of code they were traced from."""
        return TraceTime(
            nodes=self.nodes,
            seconds=round(self.seconds, 3),
            slowest=tuple(
                SlowNode(
                    node=node.name,
                    operator=str(node.target),
                    place=source_line_of(node),
                    seconds=round(seconds, 4),
                )
                for seconds, node in self.slowest
            ),
        )


@contextmanager
def log_nodes(path: Path) -> Iterator[TraceLog]:
    """Write a line per node to `path`, unbuffered: a process that hangs or dies leaves its last node."""
    path.parent.mkdir(parents=True, exist_ok=True)
    log, last = TraceLog(), time.monotonic()
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def write(_: int, node: Node) -> None:
        nonlocal last
        now = time.monotonic()
        seconds, last = now - last, now
        log.add(node, seconds)
        os.write(file, f"{seconds:.4f} s  {node.name} = {node.target}\n".encode())

    try:
        with observe_nodes(write):
            yield log
    finally:
        os.close(file)


def read_last_node(path: Path) -> str:
    """Return the last node that a trace created, or "" if it created none."""
    lines = path.read_text().splitlines() if path.exists() else []
    return lines[-1].partition("  ")[2] if lines else ""
