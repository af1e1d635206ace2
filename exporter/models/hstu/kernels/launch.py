"""What launches: a Triton kernel as an operator wraps it, or as the interpreter runs it."""

from collections.abc import Callable
from typing import Protocol


class Launchable(Protocol):
    """`kernel[grid](arguments)`."""

    def __getitem__(self, grid: tuple[int, ...], /) -> Callable[..., object]: ...
