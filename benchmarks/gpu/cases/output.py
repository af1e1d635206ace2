"""Checks of the end of an STU layer on a GPU: the operator, and each of its forms."""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import product

import torch
from torch import Tensor

from benchmarks.gpu.cases import references
from benchmarks.gpu.cases.case import BOUNDS, Case, name_of, normal, poison_allocations
from exporter.models.hstu.kernels.output import (
    Norm,
    Tiles,
    gate_into,
    gated_output,
    project_into,
    tiles_for,
)
from exporter.models.hstu.kernels.output_kernel import gate_kernel, project_kernel

_TF32_BOUND = 2e-3


@dataclass(frozen=True, kw_only=True)
class Layer:
    """Inputs of the end of an STU layer."""

    x: Tensor  # (N, D)
    uvqk: Tensor
    attended: Tensor  # (N, E)
    weight: Tensor  # (3 * E, D)
    norm: Norm
    u_column: int

    @classmethod
    def of(
        cls,
        elements: int,
        inner: int,
        width: int,
        *,
        heads: int = 0,
        dtype: torch.dtype = torch.bfloat16,
        u_column: int = 0,
    ) -> "Layer":
        """Draw a random layer; the attended values stay away from zero, where norms are unstable."""
        weight, bias = normal(2, heads or inner, dtype=dtype).unbind()
        return cls(
            x=normal(elements, width, dtype=dtype),
            uvqk=normal(elements, 4 * inner + 16, dtype=dtype),
            attended=normal(elements, inner, dtype=dtype) + 3,
            weight=normal(3 * inner, width, dtype=dtype),
            norm=Norm(weight=weight, bias=bias, heads=heads, eps=1e-6),
            u_column=u_column,
        )

    def arguments(self) -> tuple[Tensor | int | float, ...]:
        """Return the arguments of the operator."""
        norm = self.norm
        factors = (self.x, self.uvqk, self.attended, norm.weight, norm.bias, self.weight)
        return (*factors, self.u_column, norm.heads, norm.eps)

    def fused_into(self, out_ND: Tensor, tiles: Tiles, *, tf32: bool = False) -> None:
        """Launch the kernel that does the whole end of the layer."""
        project_into(
            out_ND,
            self.x,
            self.uvqk,
            self.attended,
            self.weight,
            self.norm,
            tiles,
            u_column=self.u_column,
            tf32=tf32,
            kernel=project_kernel,
        )

    def expected(self) -> Tensor:
        return references.project(
            self.x, self.uvqk, self.attended, self.weight, self.norm, u_column=self.u_column
        )


def output_cases() -> Iterator[Case]:
    for dtype, grouped in product(BOUNDS, (False, True)):
        kind = f"{name_of(dtype)}-{'heads' if grouped else 'layer'}"
        for name, way in (("", _by_operator), ("-gate", _gated_error), ("-fused", _fused_error)):
            check = partial(way, dtype=dtype, grouped=grouped)
            yield Case(name=f"output{name}-{kind}", bound=BOUNDS[dtype], check=check)
    tf32 = partial(_fused_error, dtype=torch.float32, grouped=False, tf32=True)
    yield Case(name="output-fused-tf32", bound=_TF32_BOUND, check=tf32)
    yield Case(name="output-compiled", bound=1e-3, check=_compiled_error)


def _by_operator(chance: random.Random, *, dtype: torch.dtype, grouped: bool) -> float:
    layer = _layer(chance, dtype, grouped)
    with poison_allocations():
        out = gated_output(*layer.arguments())
    return references.error_of(out, layer.expected())


def _gated_error(chance: random.Random, *, dtype: torch.dtype, grouped: bool) -> float:
    layer = _layer(chance, dtype, grouped)
    y = torch.full((len(layer.x), layer.weight.shape[0]), torch.nan, dtype=dtype, device=layer.x.device)
    gate_into(y, layer.uvqk, layer.attended, layer.norm, u_column=layer.u_column, kernel=gate_kernel)
    expected = references.gate(layer.uvqk, layer.attended, layer.norm, u_column=layer.u_column)
    return references.error_of(y, expected)


def _fused_error(chance: random.Random, *, dtype: torch.dtype, grouped: bool, tf32: bool = False) -> float:
    layer = _layer(chance, dtype, grouped)
    out = torch.full_like(layer.x, torch.nan)
    tiles = tiles_for(layer.attended.shape[1], layer.x.shape[1], layer.norm.heads, dtype.itemsize)
    layer.fused_into(out, tiles, tf32=tf32)
    return references.error_of(out, layer.expected())


def _layer(chance: random.Random, dtype: torch.dtype, grouped: bool) -> Layer:
    heads, head = chance.randrange(1, 5), chance.choice([16, 24, 32, 64])
    elements = chance.choice([1, 2, 127, 128, 129, 1000 + chance.randrange(1000)])
    width, u_column = chance.choice([16, 40, 128, 130, 256]), chance.choice([0, 5, 16])
    return Layer.of(
        elements, heads * head, width, heads=heads if grouped else 0, dtype=dtype, u_column=u_column
    )


def _compiled_error(chance: random.Random) -> float:
    """Compare both forms under torch.compile with the operator, each at several sizes."""
    compiled = torch.compile(gated_output, dynamic=True, fullgraph=True)
    errors = []
    for inner, width in ((128, 128), (512, 512)):
        for _ in range(2):
            layer = Layer.of(100 + chance.randrange(1000), inner, width)
            out = compiled(*layer.arguments())  # type: ignore[no-untyped-call]  # as operators are
            errors.append(references.error_of(out, gated_output(*layer.arguments())))
    return max(errors)
