"""The memory that the bodies of all requests in progress may take together."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from service.errors import TooManyBodies


class BodyBudget:
    """Counts the bytes of bodies in memory; used by the event loop's thread only."""

    def __init__(self, max_bytes: int) -> None:
        """Allow bodies of `max_bytes` altogether."""
        self._free = max_bytes

    @contextmanager
    def account(self) -> Iterator[Callable[[int], None]]:
        """Give a function that takes bytes for one body; they are given back when the block ends.

        The function raises TooManyBodies if so many bytes are not free.
        """
        taken = 0

        def take(count: int) -> None:
            nonlocal taken
            if count > self._free:
                raise TooManyBodies("the bodies of all requests in progress take more memory than they may")
            self._free -= count
            taken += count

        try:
            yield take
        finally:
            self._free += taken
