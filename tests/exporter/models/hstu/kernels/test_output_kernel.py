"""The end of an STU layer: both kernels, interpreted, and the operator on a CPU."""

from dataclasses import dataclass, replace

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.export import Dim, export

from benchmarks.gpu.cases import references
from benchmarks.gpu.cases.case import BOUNDS
from exporter.models.hstu.kernels.output import (
    Norm,
    Tiles,
    gate_into,
    gated_output,
    is_fused,
    project_into,
    tiles_for,
)
from tests.exporter.models.hstu.kernels.conftest import Interpreted

U_COLUMN = 5
TILES = Tiles(rows=16, columns=32, step=16, warps=4, stages=1)


@dataclass(frozen=True, kw_only=True)
class End:
    """What an STU layer ends with; numbers that are normed are away from zero."""

    x: Tensor
    uvqk: Tensor
    attended: Tensor
    weight: Tensor
    norm: Norm

    @classmethod
    def of(
        cls, elements: int, heads: int, head: int, width: int, *, grouped: bool, dtype: torch.dtype
    ) -> "End":
        inner = heads * head
        weight, bias = torch.randn(2, heads if grouped else inner).to(dtype).unbind()
        return cls(
            x=torch.randn(elements, width).to(dtype),
            uvqk=torch.randn(elements, 2 * inner + U_COLUMN).to(dtype),
            attended=(torch.randn(elements, inner) + 3).to(dtype),
            weight=torch.randn(3 * inner, width).to(dtype),
            norm=Norm(weight=weight, bias=bias, heads=heads if grouped else 0, eps=1e-6),
        )

    def expected(self) -> Tensor:
        return references.project(self.x, self.uvqk, self.attended, self.weight, self.norm, u_column=U_COLUMN)


def by_operator(end: End) -> Tensor:
    norm = end.norm
    out: Tensor = gated_output(
        end.x,
        end.uvqk,
        end.attended,
        norm.weight,
        norm.bias,
        end.weight,
        U_COLUMN,
        norm.heads,
        norm.eps,
    )
    return out


def projection_error(interpreted: Interpreted, end: End, tiles: Tiles) -> float:
    out = torch.full_like(end.x, torch.nan)
    project_into(
        out,
        end.x,
        end.uvqk,
        end.attended,
        end.weight,
        end.norm,
        tiles,
        u_column=U_COLUMN,
        tf32=False,
        kernel=interpreted("output_kernel").project_kernel,
    )
    return references.error_of(out, end.expected())


@pytest.mark.parametrize("dtype", BOUNDS, ids=str)
@pytest.mark.parametrize("grouped", [False, True])
@pytest.mark.parametrize(("heads", "head"), [(1, 48), (4, 16), (3, 200)])
def test_up_to_the_product(
    interpreted: Interpreted, dtype: torch.dtype, grouped: bool, heads: int, head: int
) -> None:
    kernel = interpreted("output_kernel").gate_kernel
    for elements in (1, 33):
        end = End.of(elements, heads, head, 8, grouped=grouped, dtype=dtype)
        y = torch.full((elements, 3 * heads * head), torch.nan, dtype=dtype)
        gate_into(y, end.uvqk, end.attended, end.norm, u_column=U_COLUMN, kernel=kernel)
        expected = references.gate(end.uvqk, end.attended, end.norm, u_column=U_COLUMN)
        assert references.error_of(y, expected) < BOUNDS[dtype]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])  # bf16 the interpreter cannot multiply
@pytest.mark.parametrize("width", [8, 32, 50])
@pytest.mark.parametrize("elements", [1, 16, 17, 31])
def test_all_of_it(interpreted: Interpreted, dtype: torch.dtype, width: int, elements: int) -> None:
    layer = End.of(elements, 2, 20, width, grouped=False, dtype=dtype)
    assert projection_error(interpreted, layer, TILES) < BOUNDS[dtype]
    heads = End.of(elements, 2, 20, width, grouped=True, dtype=dtype)
    assert projection_error(interpreted, heads, replace(TILES, step=32)) < BOUNDS[dtype]


@pytest.mark.parametrize("itemsize", [2, 4])
@pytest.mark.parametrize(("heads", "head"), [(4, 16), (2, 64), (3, 24)])
@pytest.mark.parametrize("grouped", [False, True])
def test_all_of_it_in_the_tiles_of_a_gpu(
    interpreted: Interpreted, itemsize: int, heads: int, head: int, grouped: bool
) -> None:
    dtype = torch.float16 if itemsize == 2 else torch.float32
    tiles = tiles_for(heads * head, 40, heads if grouped else 0, itemsize)
    end = End.of(tiles.rows + 1, heads, head, 40, grouped=grouped, dtype=dtype)
    assert projection_error(interpreted, end, tiles) < BOUNDS[dtype]


def test_numbers_that_are_large_and_vary_little_are_normed(interpreted: Interpreted) -> None:
    end = End.of(20, 1, 200, 16, grouped=False, dtype=torch.float32)
    end = replace(end, attended=torch.randn(20, 200) + 1000)
    # Half of the digits are in the mean.
    assert projection_error(interpreted, end, TILES) < 1e-4


@pytest.mark.parametrize("grouped", [False, True])
def test_weights_may_be_wider_than_what_they_norm(interpreted: Interpreted, grouped: bool) -> None:
    end = End.of(20, 2, 24, 16, grouped=grouped, dtype=torch.float16)
    norm = replace(end.norm, weight=end.norm.weight.float(), bias=end.norm.bias.float())
    end, tiles = replace(end, norm=norm), replace(TILES, step=32)
    assert projection_error(interpreted, end, tiles) < BOUNDS[torch.float16]
    assert references.error_of(by_operator(end), end.expected()) < BOUNDS[torch.float16]


@pytest.mark.parametrize("dtype", BOUNDS, ids=str)
def test_on_a_cpu_it_is_what_a_layer_computes(dtype: torch.dtype) -> None:
    end = End.of(30, 3, 20, 40, grouped=False, dtype=dtype)
    u = F.silu(end.uvqk[:, U_COLUMN : U_COLUMN + 60])
    normed = F.layer_norm(end.attended, (60,), end.norm.weight, end.norm.bias, end.norm.eps)
    y = torch.cat([u, end.attended, u * normed], dim=1)
    assert torch.equal(by_operator(end), torch.addmm(end.x, y, end.weight))


@pytest.mark.parametrize("dtype", BOUNDS, ids=str)
@pytest.mark.parametrize("grouped", [False, True])
def test_on_a_cpu_it_norms_heads_or_everything(dtype: torch.dtype, grouped: bool) -> None:
    end = End.of(30, 3, 20, 40, grouped=grouped, dtype=dtype)
    assert references.error_of(by_operator(end), end.expected()) < BOUNDS[dtype]


def test_the_dtype_is_that_of_what_was_projected() -> None:
    end = End.of(30, 3, 20, 40, grouped=False, dtype=torch.bfloat16)
    mixed = replace(end, x=end.x.float(), weight=end.weight.float())
    assert torch.equal(by_operator(mixed), by_operator(end))


def test_nothing_is_fused_without_tensor_cores() -> None:
    assert not is_fused(64, 64, 0, torch.float32)


class Ended(nn.Module):
    """Like an STU layer, with a width that one kernel takes."""

    def forward(self, x_ND: Tensor, uvqk_NW: Tensor, attended_NE: Tensor) -> Tensor:
        ones, weight = x_ND.new_ones(attended_NE.shape[1]), x_ND.new_ones(3 * 16, 8)
        out: Tensor = gated_output(x_ND, uvqk_NW, attended_NE, ones, ones, weight, 0, 0, 1e-6)
        return out


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])  # two kernels, and one
def test_a_trace_keeps_the_size_open(dtype: torch.dtype) -> None:
    given = tuple(torch.randn(9, width).to(dtype) for width in (8, 64, 16))
    program = export(Ended(), given, dynamic_shapes=[{0: Dim("N")}] * 3).module()
    again = tuple(torch.randn(4, width).to(dtype) for width in (8, 64, 16))
    assert torch.equal(program(*again), Ended()(*again))
