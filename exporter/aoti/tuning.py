"""Kernels for a GPU are tuned on a program's own weights; torch's private way of tuning is needed for it.

The compiler runs each kernel once while it writes the code, on inputs that it makes up: as large as what they
stand for. A table's copy of random numbers would take the table's memory again, beside the table itself: see
`workarounds.TUNING`.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING
from unittest import mock

import torch
from torch._inductor.codegen.wrapper import PythonWrapperCodegen
from torch._inductor.virtualized import V

if TYPE_CHECKING:
    from torch._inductor.codegen.cpp_wrapper_gpu import CppWrapperGpu
    from torch._inductor.ir import IRNode


@contextmanager
def tune_on_weights(weights: Mapping[str, torch.Tensor]) -> Iterator[None]:
    """Tune kernels inside on these weights, by their names in the program; no kernel writes to one.

    Whatever else a kernel takes is made up as before: inputs, what is computed, parts of a weight.
    """
    made_up = PythonWrapperCodegen.generate_example_arg_value

    def example(self: "CppWrapperGpu", arg: object, arg_type: object, raw_arg: "IRNode | None" = None) -> str:
        weight = weights.get(_name_in_program(arg)) if isinstance(arg, str) else None
        if weight is None or not weight.is_cuda:
            return str(made_up(self, arg, arg_type, raw_arg))  # type: ignore[no-untyped-call]  # inductor's
        # The names of these are bound where the code that tunes is run.
        V.graph.autotuning_inputs = [*(V.graph.autotuning_inputs or ()), weight.detach()]
        return str(self.get_autotuning_input_name(len(V.graph.autotuning_inputs) - 1))

    with mock.patch.object(PythonWrapperCodegen, "generate_example_arg_value", example):
        yield


def _name_in_program(arg: str) -> str:
    """Of a constant in the code that is being written; nothing of what is none."""
    for names in (V.graph.dynamo_flat_name_to_original_fqn, V.graph.allocated_constant_name):
        if arg in names:
            return str(names[arg])
    return ""
