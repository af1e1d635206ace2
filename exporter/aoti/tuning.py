"""Tune kernels for a GPU on a program's own weights, by patching torch's private tuning code.

While the compiler writes the code it runs each kernel once, on made-up inputs as large as the real ones. For
an embedding table, random numbers would take the table's memory again, beside the table: see
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
    """Tune kernels in this context on these weights, given by name in the program; no kernel writes them.

    Other arguments of a kernel are made up as before: inputs, computed values, parts of a weight.
    """
    make_up_value = PythonWrapperCodegen.generate_example_arg_value

    def example(self: "CppWrapperGpu", arg: object, arg_type: object, raw_arg: "IRNode | None" = None) -> str:
        weight = weights.get(_name_in_program(arg)) if isinstance(arg, str) else None
        if weight is None or not weight.is_cuda:
            return str(make_up_value(self, arg, arg_type, raw_arg))  # type: ignore[no-untyped-call]  # inductor does not annotate it
        # Inductor binds the names of these inputs where it runs the tuning code.
        V.graph.autotuning_inputs = [*(V.graph.autotuning_inputs or ()), weight.detach()]
        return str(self.get_autotuning_input_name(len(V.graph.autotuning_inputs) - 1))

    with mock.patch.object(PythonWrapperCodegen, "generate_example_arg_value", example):
        yield


def _name_in_program(arg: str) -> str:
    """Return the program's name of a constant in the generated code, or "" if it is not a constant."""
    for names in (V.graph.dynamo_flat_name_to_original_fqn, V.graph.allocated_constant_name):
        if arg in names:
            return str(names[arg])
    return ""
