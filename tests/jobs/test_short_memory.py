"""Values that are kept for a short while."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from jobs.short_memory import LIFETIME_S, Kept, KeptClock

NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)


class Watch:
    """A clock that stands still until it is set."""

    def __init__(self) -> None:
        self.at = 100.0

    def __call__(self) -> float:
        return self.at


def test_a_value_is_read_again_when_it_is_old() -> None:
    watch, values = Watch(), iter("abc")
    kept = Kept(lambda: next(values), clock=watch)
    assert [kept.get(), kept.get()] == ["a", "a"]
    watch.at += LIFETIME_S / 2
    assert kept.get_with_age() == ("a", LIFETIME_S / 2)
    watch.at += LIFETIME_S
    assert kept.get() == "b"


def test_nothing_is_kept_of_a_read_that_fails() -> None:
    def read() -> Iterator[int]:
        yield 1
        raise ConnectionError

    answers, watch = read(), Watch()
    kept = Kept(lambda: next(answers), clock=watch)
    assert kept.get() == 1
    watch.at += 2 * LIFETIME_S
    with pytest.raises(ConnectionError):
        kept.get()
    with pytest.raises(StopIteration):  # asked again
        kept.get()


def test_a_clock_goes_on_between_readings_and_follows_the_other_one() -> None:
    watch, readings = Watch(), [NOON, NOON + timedelta(hours=1)]
    clock = KeptClock(lambda: readings.pop(0), watch)
    assert clock.now() == NOON
    watch.at += 0.25
    assert clock.now() == NOON + timedelta(seconds=0.25)
    watch.at += LIFETIME_S
    assert clock.now() == NOON + timedelta(hours=1)
