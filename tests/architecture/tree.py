"""A parsed file of this repository."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PROGRAMS = ("cli", "exporter", "jobs", "launcher", "processes", "service", "slipway", "telemetry", "worker")

SCRIPTS = ("benchmarks", "deploy", "docs", "examples")

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

    @property
    def is_documented(self) -> bool:
        return self.is_shipped or self.path.split("/")[0] in SCRIPTS

    @property
    def name(self) -> str:
        """The name it is imported by."""
        return self.path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")

    def functions(self) -> Iterator[Function]:
        for node in ast.walk(self.tree):
            if isinstance(node, Function):
                yield node
