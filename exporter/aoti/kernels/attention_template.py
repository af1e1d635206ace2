"""Put the kernel of `jagged_attention` into the code that inductor generates for a CPU.

A package then needs nothing of ours where it is served. Inductor's templates of C++ kernels are private.
"""

from collections.abc import Callable, Mapping
from functools import cache, partial
from pathlib import Path
from typing import Any

import torch
from torch._inductor import ir, lowering
from torch._inductor.codegen.cpp_template_kernel import CppTemplateKernel
from torch._inductor.utils import Placeholder

import exporter.models.hstu.kernels.jagged_attention  # noqa: F401  registers the operator

_TEXT = Path(__file__).with_name("jagged_attention.h")
_CODE = """#include <torch/csrc/inductor/cpp_prefix.h>
{text}
extern "C" {function}
{{
    {profile}
    const slipway::Attention form{{{form}}};
    slipway::attend({arguments});
}}
"""


@cache
def register_kernels() -> None:
    """Make inductor put our kernels where a graph calls their operators, in this process from now on."""
    register: Any = lowering.register_lowering
    register(torch.ops.slipway.jagged_attention.default, type_promotion_kind=None)(_lower)


def _lower(  # noqa: PLR0913  the operator's arguments
    q: ir.TensorBox,
    k: ir.TensorBox,
    v: ir.TensorBox,
    offsets: ir.TensorBox,
    asking: ir.TensorBox,
    candidates: ir.TensorBox | None,
    heads: int,
    alpha: float,
    divisor: float,
    prefix: int = 0,
    window: int = 0,
    sla_k1: int = 0,
    sla_k2: int = 0,
) -> ir.TensorBox:
    """Return the buffer that the kernel fills: an element's heads side by side."""
    given = {"q": q, "k": k, "v": v, "offsets": offsets, "asking": asking, "candidates": candidates}
    read = {name: _rows_of_neighbours(each) for name, each in given.items() if each is not None}
    queries, width = q.get_size()[0], v.get_size()[1]
    template: Any = ir.CppTemplateBuffer
    form = (
        heads, q.get_size()[1] // heads, width // heads, float(alpha), float(divisor),
        prefix, window, sla_k1, sla_k2, candidates is not None,
    )  # fmt: skip
    made: Any = template(
        layout=ir.FixedLayout(q.get_device_or_error(), v.get_dtype(), [queries, width]),
        inputs=list(read.values()),
        make_kernel_render=partial(_make_kernel, read, form),
        template=None,
        choice=None,
    )
    made.allow_epilogue_fusion = False
    box: ir.TensorBox = ir.TensorBox.create(made)
    return box


def _rows_of_neighbours(x: ir.TensorBox) -> ir.IRNode:
    """Return the tensor in memory, as a view of a buffer if it is one, its last axis without gaps."""
    realized: Any = ir.ExternKernel.realize_input(x)
    if realized.get_stride()[-1] != 1:
        realized = ir.ExternKernel.copy_input(x)
    return realized.data if isinstance(realized, ir.StorageBox | ir.TensorBox) else realized


def _make_kernel(
    read: Mapping[str, ir.IRNode], form: tuple[float, ...], made: ir.IRNode, **_: object
) -> tuple[CppTemplateKernel, Callable[[], str]]:
    """Return a kernel and the function that renders its code, as the scheduler asks for them."""
    kernel: Any = CppTemplateKernel(kernel_name=str(Placeholder.KERNEL_NAME), num_threads=1)
    return kernel, partial(kernel.render, _Rendered(read, form, made))


class _Rendered:
    """Template in inductor's sense: it renders the text of one call."""

    def __init__(self, read: Mapping[str, ir.IRNode], form: tuple[float, ...], made: ir.IRNode) -> None:
        self._read, self._form, self._made = read, form, made

    def render(self, kernel: Any) -> str:
        function = kernel.def_kernel(inputs=self._read, outputs={"out": self._made})
        names = {name: self._pointer(kernel, name) for name in self._read}
        arguments = [
            "form",
            *(part for name in "qkv" for part in (names[name], kernel.stride(self._read[name], 0))),
            names["offsets"],
            names["asking"],
            names.get("candidates", "static_cast<const int64_t*>(nullptr)"),
            f"{kernel.size(self._read['offsets'], 0)} - 1",
            kernel.size(self._read["k"], 0),
            kernel.size(self._read["q"], 0),
            "out",
        ]
        return _CODE.format(
            text=_TEXT.read_text(),
            function=function,
            profile=kernel.maybe_codegen_profile(),
            form=", ".join(_literal(each) for each in self._form),
            arguments=", ".join(arguments),
        )

    def _pointer(self, kernel: Any, name: str) -> str:
        """Return the address of a tensor: views of one buffer are one argument of the kernel."""
        node: Any = self._read[name]
        start = kernel.rename_indexing(node.get_layout().offset)
        return f"{kernel.args.input_buffers[node.get_name()]} + {start}"


def _literal(value: float) -> str:
    """Return a number as C++ reads it: a float exactly."""
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value.hex()}f" if isinstance(value, float) else f"{value}"
