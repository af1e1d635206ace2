"""Workarounds for faults of torch: each with a link, what breaks without it, and when it can be removed."""

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Workaround:
    """One fault of torch; its workaround goes once no supported release has the fault."""

    name: str
    link: str
    breaks: str  # what happens without the workaround
    seen_in: str  # the last release in which the fault was seen
    fixed_in: str | None = None  # None: no release has the fix yet


REEXPORT = Workaround(
    name="named_arguments",
    link="https://github.com/pytorch/pytorch/issues/171964",
    breaks="the module of a program takes `*args`; exporting it again binds its inputs as one tuple, and "
    "refuses every dynamic shape that is given for them by position",
    seen_in="2.13",
)
MERGED_CALLS = Workaround(
    name="EditableProgram",
    link="https://github.com/pytorch/pytorch/blob/v2.13.0/torch/export/unflatten.py",
    breaks="unflatten treats two calls of a module as equal when their own graph lines are, even if the "
    "submodules they call were traced differently: one of them then silently computes the other's result",
    seen_in="2.13",
)
HEADERS = Workaround(
    name="keep_headers",
    link="https://github.com/pytorch/pytorch/blob/v2.13.0/torch/_inductor/codecache.py",
    breaks="precompiled headers are cached below TMPDIR and not below TORCHINDUCTOR_CACHE_DIR: an attempt, "
    "which has a TMPDIR of its own, compiles them again, which takes longer than compiling everything else",
    seen_in="2.13",
)
PROBES = Workaround(
    name="probe_quickly",
    link="https://github.com/pytorch/pytorch/blob/v2.13.0/torch/_inductor/cpu_vec_isa.py",
    breaks="each instruction set is probed by compiling a program with ten headers of torch, and by loading "
    "it in a child process: ten seconds of the first export on a machine, and two of every other one",
    seen_in="2.13",
)
SHORTCUTS = Workaround(
    name="shortcuts",
    link="https://github.com/pytorch/pytorch/blob/v2.13.0/torch/_inductor/dtype_propagation.py",
    breaks="inductor fills the table of rules for dtypes anew for every operation of every kernel, wraps all "
    "functions for vectors anew for every kernel, finds the stride of an index by sympy's simplify, and asks "
    "for the same sums and products of sizes thousands of times: a quarter of its time",
    seen_in="2.13",
)
INTERFACE = Workaround(
    name="link_interface",
    link="https://github.com/pytorch/pytorch/blob/v2.13.0/torch/_inductor/codegen/cpp_wrapper_cpu.py",
    breaks="the functions by which packages are called are part of each package's source, and are compiled "
    "anew for each: half of the seconds that its wrapper takes",
    seen_in="2.13",
)
TUNING = Workaround(
    name="tune_on_weights",
    link="https://github.com/pytorch/pytorch/blob/v2.13.0/torch/_inductor/codegen/wrapper.py",
    breaks="kernels for a GPU are tuned on random tensors as large as the weights they read: a tower whose "
    "table takes more than half of the GPU's memory cannot be compiled",
    seen_in="2.13",
)

LOOPS = Workaround(
    name="loop_ordering_after_fusion",
    link="https://github.com/pytorch/pytorch/blob/v2.13.0/torch/_inductor/sizevars.py",
    breaks="a loop over rows and width is fused with a reduction of each row and only then merged to one "
    "loop, which must be split again: where the number of rows is a sum (a prefix and a history), inductor "
    "does not see that it divides the product (CantSplit). A cast is such a loop: HSTU in bf16 or fp16 "
    "cannot be compiled for a GPU. If the loop is merged before, inductor does not fuse it",
    seen_in="2.13",
    fixed_in="2.14",
)

SIZES = Workaround(
    name="check_shared_sizes",
    link="https://github.com/pytorch/pytorch/blob/v2.12.0/torch/_inductor/codegen/cpp_wrapper_cpu.py",
    breaks="a package compares sizes of its inputs with their bounds, and not with each other: it reads "
    "beyond the end of an input that has fewer rows than the others",
    seen_in="2.12",
    fixed_in="2.13",
)

WORKAROUNDS = (REEXPORT, MERGED_CALLS, HEADERS, PROBES, SHORTCUTS, INTERFACE, TUNING, LOOPS, SIZES)


def named_arguments(forward: Callable[..., T], names: Sequence[str]) -> Callable[..., T]:
    """Wrap `forward` so that its parameters have these names, to which torch.export maps dynamic shapes."""

    def with_names(*args: object) -> T:
        return forward(*args)

    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    signature = inspect.Signature([inspect.Parameter(name, kind) for name in names])
    with_names.__signature__ = signature  # type: ignore[attr-defined]  # what inspect.signature looks for
    return with_names
