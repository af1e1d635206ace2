"""The memory that the bodies of all requests in progress may take together."""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from service.errors import TooManyBodies

_SHARE = 0.75  # of the whole: one sender leaves something to all others


class BodyBudget:
    """Counts the bytes of bodies in memory; used by the event loop's thread only."""

    def __init__(self, max_bytes: int) -> None:
        """Allow bodies of `max_bytes` altogether, and of a part of that to each sender."""
        self._free = max_bytes
        self._share = int(max_bytes * _SHARE)
        self._taken: Counter[str] = Counter()  # by sender

    @contextmanager
    def account(self, sender: str) -> Iterator[Callable[[int], None]]:
        """Give a function that takes bytes for one body; they are given back when the block ends.

        The function raises TooManyBodies if so many bytes are not free, or are more than the sender's part.
        """
        taken = 0

        def take(count: int) -> None:
            nonlocal taken
            if count > self._free or self._taken[sender] + count > self._share:
                raise TooManyBodies("the bodies of all requests in progress take more memory than they may")
            self._free -= count
            self._taken[sender] += count
            taken += count

        try:
            yield take
        finally:
            self._free += taken
            self._taken[sender] -= taken
            self._taken = +self._taken  # forgets senders with nothing left
