"""Check in a package that inputs of one size have it, where torch generates no such check.

See `workarounds.SIZES`.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

import sympy
from torch._inductor.codegen.cpp_wrapper_cpu import CppWrapperCpu
from torch._inductor.virtualized import V

# A macro's own name within it is not replaced again: the call of the checks that torch generates stays.
_CHECK = """
AOTI_NOINLINE static void check_shared_sizes(AtenTensorHandle* input_handles) {{
    if (!_check_aoti_runtime_check_inputs_env()) {{
        return;
    }}
{comparisons}
}}
#define __check_inputs_outputs(inputs, outputs) \\
    (__check_inputs_outputs(inputs, outputs), check_shared_sizes(inputs))
"""
_COMPARE = """
    {{
        ConstantHandle first = ConstantHandle(input_handles[{first}]);
        ConstantHandle other = ConstantHandle(input_handles[{other}]);
        if (first.sizes()[{first_axis}] != other.sizes()[{other_axis}]) {{
            std::stringstream ss;
            ss << "input_handles[{other}]: unmatched dim value at {other_axis}, expected: "
               << first.sizes()[{first_axis}] << " as in input_handles[{first}], but got: "
               << other.sizes()[{other_axis}] << "\\n";
            throw std::runtime_error(ss.str());
        }}
    }}
"""


@contextmanager
def check_shared_sizes() -> Iterator[None]:
    """Let packages refuse inputs that disagree on a size; nothing is done where torch lets them do so."""
    if hasattr(CppWrapperCpu, "_codegen_assert_size_stride"):
        yield
        return
    generate = CppWrapperCpu.generate_input_output_runtime_checks

    def generate_all(self: CppWrapperCpu) -> None:
        generate(self)  # type: ignore[no-untyped-call]  # inductor does not annotate it
        self.prefix.splice(_CHECK.format(comparisons="".join(_compare_sizes())))

    with mock.patch.object(CppWrapperCpu, "generate_input_output_runtime_checks", generate_all):
        yield


def _compare_sizes() -> Iterator[str]:
    """Yield code for every size of an input that an earlier one has too."""
    seen: dict[sympy.Symbol, tuple[int, int]] = {}
    for place, tensor in enumerate(V.graph.graph_inputs.values()):
        for axis, size in enumerate(tensor.get_size()):
            if not isinstance(size, sympy.Symbol):
                continue
            first, first_axis = seen.setdefault(size, (place, axis))
            if (first, first_axis) != (place, axis):
                yield _COMPARE.format(first=first, first_axis=first_axis, other=place, other_axis=axis)
