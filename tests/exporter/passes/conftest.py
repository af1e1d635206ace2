"""Small models whose submodules are called more than once."""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram

TRUE, FALSE = True, False  # given by position, as a model's code may

BATCH = Dim("batch", min=1, max=64)

Served = Callable[[dict[str, Tensor]], dict[str, Tensor]]  # a module, or a loaded package


def traced(module: nn.Module, *, preserved: tuple[str, ...] = ()) -> ExportedProgram:
    return torch.export.export(
        module,
        ({"x": torch.rand(5, 3)},),
        dynamic_shapes=({"x": {0: BATCH}},),
        strict=False,
        preserve_module_call_signature=preserved,
    )


class Adds(nn.Module):
    """Adds 1, or 2."""

    def forward(self, x: Tensor, first: bool) -> Tensor:
        return x + 1 if first else x + 2


class TrueThenFalse(nn.Module):
    """16 for 1; 15 if both calls were taken for the first."""

    def __init__(self) -> None:
        super().__init__()
        self.n = Adds()

    def forward(self, inputs: dict[str, Tensor]) -> dict[str, Tensor]:
        return {"y": self.n(self.n(inputs["x"] + 3, TRUE) + 4, FALSE) + 5}


class Weighted(nn.Module):
    """A linear layer and a weight, or the weight alone."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.rand(3))
        self.linear = nn.Linear(3, 3)

    def forward(self, x: Tensor, linear: bool) -> Tensor:
        return self.linear(x) + self.weight if linear else x * self.weight


class TwoNames(nn.Module):
    """One module under two names."""

    def __init__(self) -> None:
        super().__init__()
        self.a = Weighted()
        self.b = self.a

    def forward(self, inputs: dict[str, Tensor]) -> dict[str, Tensor]:
        x = inputs["x"]
        return {"y": self.b(self.a(x, TRUE), FALSE) + self.a(x * 2, TRUE)}


class Twice(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.n = Weighted()

    def forward(self, x: Tensor, linear: bool) -> Tensor:
        twice: Tensor = self.n(self.n(x, linear), FALSE)
        return twice


class Nested(nn.Module):
    """Calls of a module that makes calls, alike but for what these were traced with."""

    def __init__(self) -> None:
        super().__init__()
        self.p = Twice()

    def forward(self, inputs: dict[str, Tensor]) -> dict[str, Tensor]:
        x = inputs["x"]
        for linear in (True, False, True):
            x = self.p(x, linear)
        return {"y": x}


def rows(count: int) -> dict[str, Tensor]:
    return {"x": torch.rand(count, 3, generator=torch.Generator().manual_seed(count))}


def assert_same(module: nn.Module, edited: Served) -> None:
    """At sizes that nothing was traced with."""
    for count in (1, 2, 9):
        torch.testing.assert_close(edited(rows(count))["y"], module(rows(count))["y"])
