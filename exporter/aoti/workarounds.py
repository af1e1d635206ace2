"""What torch gets wrong and we put right: each with its link, what breaks without it, and its end."""

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Workaround:
    """One fault of torch, and the first release in which what stands here may go."""

    name: str
    link: str
    breaks: str  # what happens without it
    seen_in: str  # the release it was last met in
    fixed_in: str | None = None  # None: no release has the fix yet


REEXPORT = Workaround(
    name="named_arguments",
    link="https://github.com/pytorch/pytorch/issues/171964",
    breaks="a program made a module again takes `*args`; export binds its inputs as one tuple, and refuses "
    "every dynamic shape that is given for them by position",
    seen_in="2.13",
)
MERGED_CALLS = Workaround(
    name="EditableProgram",
    link="https://github.com/pytorch/pytorch/blob/v2.13.0/torch/export/unflatten.py",
    breaks="unflatten takes two calls of a module for equal when their own lines are, though the submodules "
    "they call were traced differently: one of them then computes what the other does, silently",
    seen_in="2.13",
)
HEADERS = Workaround(
    name="_keep_headers",
    link="https://github.com/pytorch/pytorch/blob/v2.13.0/torch/_inductor/codecache.py",
    breaks="compiled headers are kept below TMPDIR and not below TORCHINDUCTOR_CACHE_DIR: an attempt, whose "
    "TMPDIR is its own, compiles them anew, which takes longer than all else it compiles",
    seen_in="2.13",
)
PROBES = Workaround(
    name="_remember_probes",
    link="https://github.com/pytorch/pytorch/blob/v2.13.0/torch/_inductor/cpu_vec_isa.py",
    breaks="each process loads every library that probes for an instruction set, in a process for each: one "
    "to three seconds of every export, and again for the manifest, though the libraries themselves are kept",
    seen_in="2.13",
)
TUNING = Workaround(
    name="tune_on_weights",
    link="https://github.com/pytorch/pytorch/blob/v2.13.0/torch/_inductor/codegen/wrapper.py",
    breaks="kernels for a GPU are tuned on copies of the weights they read, as large as these: a tower "
    "whose table takes more than half of the GPU's memory cannot be compiled",
    seen_in="2.13",
)

LOOPS = Workaround(
    name="loop_ordering_after_fusion",
    link="https://github.com/pytorch/pytorch/blob/v2.13.0/torch/_inductor/sizevars.py",
    breaks="a loop over rows and their width is fused with a reduction of each row, and made one loop after "
    "that, which must be split again: where the rows are a sum, a prefix and a history, inductor does not "
    "see that they divide the product (CantSplit). A cast is such a loop: HSTU in bf16 or fp16 is not "
    "compiled for a GPU. Made one loop before, it is found not to fit, and is left apart",
    seen_in="2.13",
)

WORKAROUNDS = (REEXPORT, MERGED_CALLS, HEADERS, PROBES, TUNING, LOOPS)


def named_arguments(forward: Callable[..., T], names: Sequence[str]) -> Callable[..., T]:
    """`forward`, taking arguments of these names: what torch.export reads dynamic shapes against."""

    def named(*args: object) -> T:
        return forward(*args)

    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    signature = inspect.Signature([inspect.Parameter(name, kind) for name in names])
    named.__signature__ = signature  # type: ignore[attr-defined]  # what inspect.signature looks for
    return named
