"""Recognise errors that mean out of memory, on a GPU or the machine, by the text of the message.

A package's runtime passes on an error's message but not its type: even torch.OutOfMemoryError becomes a
RuntimeError there, the same type as a package's refusal of its inputs.
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
    """Return the OutOfMemory to raise instead of `error`, if it or one of its causes means that, else None.

    `at` is put in front of the message: the step that failed.
    """
    current: BaseException | None = error
    while current is not None:
        if isinstance(current, OutOfMemory):
            return current
        text = str(current)
        if isinstance(current, MemoryError) or _WORDS.search(text):
            return OutOfMemory(": ".join(filter(None, [at, _matching_line(text)])))
        current = current.__cause__ or current.__context__
    return None


def _matching_line(text: str) -> str:
    """Return the line that matches: torch adds a stack below it, the compiler its own messages above."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    line = next((line for line in lines if _WORDS.search(line)), "out of memory")
    return line[:_LONGEST]
