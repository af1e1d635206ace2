"""What inductor makes of the operators on a GPU, as far as it goes without one."""

import warnings
from collections.abc import Callable, Iterator

import pytest
import torch
import triton
from torch import Tensor, nn
from torch._functorch.aot_autograd import aot_export_module
from torch._guards import TracingContext, tracing
from torch._inductor.decomposition import select_decomp_table
from torch._inductor.virtualized import V
from torch._subclasses import FakeTensorMode
from torch.export import Dim, export
from torch.fx import GraphModule
from triton.backends.compiler import GPUTarget

from benchmarks.gpu.cases.attention import AttentionCase, MaskSettings
from exporter.models.hstu.kernels.output import gated_output
from exporter.models.hstu.kernels.position import encode_positions

with warnings.catch_warnings():  # of torch about itself
    warnings.simplefilter("ignore")
    from torch._inductor.fx_passes.post_grad import decompose_triton_kernel_wrapper_functional

Op = Callable[
    [Tensor, Tensor, Tensor, Tensor], Tensor
]  # of (N, 128), offsets (B + 1,), counts (B,), times (N,)

FORM = AttentionCase(lengths=(1,), heads=2, mask=MaskSettings(window=5)).form
LAUNCH = torch.ops.higher_order.triton_kernel_wrapper_functional


class Driver:
    """Of a GPU that there is none of: what inductor asks for it before it generates code."""

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("cuda", 90, 32)

    def get_current_device(self) -> int:
        return 0


@pytest.fixture(autouse=True)
def hopper() -> Iterator[None]:
    before = triton.runtime.driver._active
    triton.runtime.driver.set_active(Driver())
    yield
    triton.runtime.driver._active = before


def on_cuda(*shape: int) -> Tensor:
    return torch.zeros(shape, device="cuda")


OPS: dict[str, tuple[Op, int]] = {
    "attention": (lambda x, offsets, counts, times: FORM(x, offsets, None), 1),
    "attention to candidates": (lambda x, offsets, counts, times: FORM(x, offsets, counts), 1),
    "attention to what has positions": (
        lambda x, offsets, counts, times: FORM(
            encode_positions(x, offsets, None, on_cuda(64, 128), 7.0, 2), offsets, None
        ),
        2,
    ),
    "positions": (
        lambda x, offsets, counts, times: encode_positions(x, offsets, None, on_cuda(64, 128), 7.0, 2),
        1,
    ),
    "positions and ages": (
        lambda x, offsets, counts, times: encode_positions(
            x, offsets, None, on_cuda(64, 128), 7.0, 2, times, None, on_cuda(101, 128), 60.0
        ),
        1,
    ),
    "positions and ages of candidates": (
        lambda x, offsets, counts, times: encode_positions(
            x, offsets, counts, on_cuda(64, 128), 7.0, 2, times, times, on_cuda(101, 128), 60.0
        ),
        1,
    ),
    "end of a layer": (
        lambda x, offsets, counts, times: gated_output(
            x, torch.cat([x, x], 1), x, on_cuda(128), on_cuda(128), on_cuda(384, 128), 0, 0, 1e-6
        ),
        1,
    ),
}


class Calling(nn.Module):
    def __init__(self, op: Op) -> None:
        super().__init__()
        self._op = op

    def forward(self, x: Tensor, offsets: Tensor, counts: Tensor, times: Tensor) -> Tensor:
        return self._op(x * 2, offsets, counts, times) + 1


def lowered(op: Op) -> tuple[GraphModule, FakeTensorMode]:
    """The program as inductor gets it: the operators taken apart, nothing written in place."""
    with FakeTensorMode(allow_non_fake_inputs=True):
        args = (on_cuda(15, 128), on_cuda(4).long(), on_cuda(3).long(), on_cuda(15))
        program = export(Calling(op), args, dynamic_shapes=({0: Dim.AUTO},) * 4)
    values = [node.meta["val"] for node in program.graph.nodes if node.op == "placeholder"]
    with values[0].fake_mode:
        graph, _ = aot_export_module(
            program.graph_module, values, trace_joint=False, decompositions=select_decomp_table()
        )
    assert isinstance(graph, GraphModule)
    return graph, values[0].fake_mode


@pytest.mark.parametrize("name", OPS)
def test_launches_write_their_output_alone_and_survive_inductors_passes(name: str) -> None:
    op, launches = OPS[name]
    module, mode = lowered(op)
    written = [node.kwargs["tensors_to_clone"] for node in module.graph.nodes if node.target is LAUNCH]
    assert len(written) == launches
    assert all(len(each) == 1 for each in written), written
    with V.set_fake_mode(mode), tracing(TracingContext(mode)):
        decompose_triton_kernel_wrapper_functional(module.graph)
    assert not [node for node in module.graph.nodes if node.target is LAUNCH]
