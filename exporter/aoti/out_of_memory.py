"""Whether memory ran out, a GPU's or the machine's: by the words of torch and of what packages call.

A package's runtime passes on an error's words and not its type, so that even torch.OutOfMemoryError comes out
of it as a RuntimeError, as does a package's refusal of its inputs.
"""

import re

from exporter.errors import OutOfMemory

_WORDS = re.compile(
    r"\bout of memory\b"  # torch's allocator, CUDA's runtime and its driver; the C++ compiler
    r"|_STATUS_ALLOC_FAILED\b"  # cuBLAS, cuDNN
    r"|\bDefaultCPUAllocator: "  # torch's allocator on a CPU
    r"|\bstd::bad_alloc\b",
    re.IGNORECASE,
)
_LONGEST = 500


def as_out_of_memory(error: BaseException, at: str = "") -> OutOfMemory | None:
    """What to raise instead of `error` if it, or what led to it, is that memory ran out; else None.

    `at` begins the message: what could not be done.
    """
    looked_at: BaseException | None = error
    while looked_at is not None:
        if isinstance(looked_at, OutOfMemory):
            return looked_at
        text = str(looked_at)
        if isinstance(looked_at, MemoryError) or _WORDS.search(text):
            return OutOfMemory(": ".join(filter(None, [at, _matching_line(text)])))
        looked_at = looked_at.__cause__ or looked_at.__context__
    return None


def _matching_line(text: str) -> str:
    """The line that says it: torch puts a stack below, and the compiler its own words above."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    said = next((line for line in lines if _WORDS.search(line)), "out of memory")
    return said[:_LONGEST]
