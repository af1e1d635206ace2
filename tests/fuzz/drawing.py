"""Running a property on many drawn inputs, the same ones every time, and counting them."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

FEW = 60  # with all tests
MANY = 3000  # by `make fuzz`

_Drawn = TypeVar("_Drawn")


@dataclass
class Count:
    """The number of inputs that were tried, and of those that were accepted."""

    tried: int = 0
    taken: int = 0
    said: set[str] = field(default_factory=set)  # the codes of what was refused


def draw(strategy: st.SearchStrategy[_Drawn], examples: int, check: Callable[[_Drawn], None]) -> None:
    """Call `check` with so many examples of the strategy."""
    unhurried = settings(
        max_examples=examples,
        deadline=None,
        database=None,
        derandomize=True,
        suppress_health_check=list(HealthCheck),
    )
    unhurried(given(strategy)(check))()


@st.composite
def mutated(draw_one: st.DrawFn, original: bytes, tokens: tuple[bytes, ...]) -> bytes:
    """The original, cut, doubled, overwritten and interspersed at a few places."""
    data = bytearray(original)
    for _ in range(draw_one(st.integers(1, 6))):
        at = draw_one(st.integers(0, len(data)))
        end = min(len(data), at + draw_one(st.integers(0, 40)))
        instead = draw_one(
            st.one_of(
                st.just(b""),
                st.binary(max_size=8),
                st.sampled_from(tokens),
                st.just(bytes(data[at:end]) * 2),
                st.just(bytes(data[end : end + 20])),
            )
        )
        data[at:end] = instead
    return bytes(data)
