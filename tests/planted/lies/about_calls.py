"""Lies about what calls of a package do beside computing: what they keep, share and change."""

import re

from tests.planted.lies.compiler import edit_source, swap_outputs
from tests.planted.lies.lie import Lie

_BEGIN = "__check_inputs_outputs(input_handles, output_handles);"
_END = re.compile(r"    output_handles\[0\] = (?P<output>\w+)\.release\(\);")


def _edited(wrapper: str, end: str, *, begin: str = "", instead: bool = False) -> str:
    """Return the source with C++ where a call begins and where it hands over its first output, `OUTPUT`."""

    def hand_over(found: re.Match[str]) -> str:
        own = end.replace("OUTPUT", found["output"])
        return own if instead else f"{own}\n{found[0]}"

    return _END.sub(hand_over, wrapper.replace(_BEGIN, f"{begin}\n{_BEGIN}"), count=1)


_LEAK = """
    static void* volatile kept = nullptr;
    kept = ::operator new(100);
"""
_SHARED = """
    static char shared[1 << 16];
    int64_t numbers = 0;
    aoti_torch_get_numel(OUTPUT, &numbers);
    const size_t bytes = std::min<size_t>(sizeof(shared), numbers * sizeof(float));
    __builtin_memcpy(shared, OUTPUT.data_ptr(), bytes);
    for (volatile int wait = 0; wait < 20000; wait = wait + 1) {}
    __builtin_memcpy(OUTPUT.data_ptr(), shared, bytes);
"""
_KEPT_OUTPUT = """
    static AtenTensorHandle kept = nullptr;
    static int64_t size = -1;
    int64_t numbers = 0;
    aoti_torch_get_numel(OUTPUT, &numbers);
    if (size == numbers) {
        void* room = nullptr;
        aoti_torch_get_data_ptr(kept, &room);
        __builtin_memcpy(room, OUTPUT.data_ptr(), numbers * sizeof(float));
        aoti_torch_new_tensor_handle(kept, &output_handles[0]);
    } else {
        size = numbers;
        aoti_torch_new_tensor_handle(OUTPUT, &kept);
        output_handles[0] = OUTPUT.release();
    }
"""
_INPUT = """
    void* first_input = nullptr;
    aoti_torch_get_data_ptr(input_handles[0], &first_input);
"""

LIES = (
    Lie(
        name="leak",
        does="every call keeps a hundred bytes",
        plant=edit_source(lambda wrapper: _edited(wrapper, _LEAK)),
        code="package_leaks",
        says=("each call keeps", "bytes of memory"),
        family="ScorerFamily",
    ),
    Lie(
        name="shared_memory",
        does="an output passes through memory that all calls share",
        plant=edit_source(lambda wrapper: _edited(wrapper, _SHARED)),
        code="calls_mixed",
        says=("score differs", "calls of two threads"),
        family="ScorerFamily",
    ),
    Lie(
        name="output_overwritten",
        does="a call writes its output over that of an earlier call of its size",
        plant=edit_source(lambda wrapper: _edited(wrapper, _KEPT_OUTPUT, instead=True)),
        code="interface_broken",
        says=("a later call changes the output score",),
        family="ScorerFamily",
    ),
    Lie(
        name="input_changed",
        does="a call writes to its input when it is done with it",
        plant=edit_source(
            lambda wrapper: _edited(wrapper, "    static_cast<float*>(first_input)[0] += 1;", begin=_INPUT)
        ),
        code="package_unsteady",
        says=("score", "between two runs", "a call changes its input "),
        family="ScorerFamily",
    ),
    Lie(
        name="handover_exchanged",
        does="the sparse package returns two tensors of one shape under each other's names",
        plant=swap_outputs("age", "price"),
        code="tensors_exchanged",
        says=("sparse_model.pt2", "age", "price"),
        spec={"mode": "two_stage"},
    ),
)
