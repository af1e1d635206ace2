"""Kernels run without a GPU: by Triton's interpreter."""

import importlib.util
import sys
from collections.abc import Callable
from types import ModuleType

import pytest
import triton.experimental.gluon  # noqa: F401  loaded at the first launch, it would meet what is patched here
import triton.language as tl
from triton.runtime.interpreter import InterpretedFunction
from triton.runtime.jit import JITFunction

import exporter.models.hstu.kernels as kernels

Interpreted = Callable[[str], ModuleType]


@pytest.fixture
def interpreted(monkeypatch: pytest.MonkeyPatch) -> Interpreted:
    """A module of kernels by its name, loaded once more so that what it decorates is interpreted."""
    _interpret_language(monkeypatch)

    def load(name: str) -> ModuleType:
        monkeypatch.setenv("TRITON_INTERPRET", "1")
        spec = importlib.util.find_spec(f"{kernels.__name__}.{name}")
        assert spec is not None
        assert spec.origin is not None
        again = importlib.util.spec_from_file_location(f"interpreted_{name}", spec.origin)
        assert again is not None
        assert again.loader is not None
        module = importlib.util.module_from_spec(again)
        monkeypatch.setitem(sys.modules, again.name, module)
        again.loader.exec_module(module)
        return module

    return load


def _interpret_language(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace what Triton's own library decorated when it was imported, such as `tl.sum`, for this test.

    Everything is set, if only to what it is, so that what the interpreter patches and leaves so is put back:
    another test of this process may compile.
    """
    versions: dict[JITFunction[object], InterpretedFunction[object]] = {}
    for owner in (tl, tl.core, tl.math, tl.standard, tl.random, tl.tensor, tl.dtype):
        for name, value in list(vars(owner).items()):
            if isinstance(value, JITFunction):
                value = versions.setdefault(value, InterpretedFunction(value.fn))  # noqa: PLW2901  the same, interpreted
            if not name.startswith("__") or name in ("__index__", "__bool__", "__repr__", "__str__"):
                monkeypatch.setattr(owner, name, value)
