"""A parsed file of this repository."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PROGRAMS = ("cli", "exporter", "jobs", "launcher", "processes", "service", "slipway", "telemetry", "worker")

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Module:
    """A Python file: where it is, what it says, and how it parses."""

    path: str  # below the root
    text: str
    tree: ast.Module

    @property
    def is_shipped(self) -> bool:
        return self.path.split("/")[0] in PROGRAMS

    def functions(self) -> Iterator[Function]:
        for node in ast.walk(self.tree):
            if isinstance(node, Function):
                yield node
