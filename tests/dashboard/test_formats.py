"""Quantities as people read them."""

import pytest

from service.dashboard import formats


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "0 ms"),
        (0.0024, "2 ms"),
        (0.9996, "1.0 s"),
        (9.96, "10 s"),
        (59.6, "1 min 00 s"),
        (65, "1 min 05 s"),
        (7384, "2 h 03 min"),
    ],
)
def test_seconds(seconds: float, text: str) -> None:
    assert formats.seconds(seconds) == text


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 bytes"), (999, "999 bytes"), (2_789_835, "2.79 MB"), (999_999, "1 MB"), (3 << 40, "3.3 TB")],
)
def test_sizes(count: int, text: str) -> None:
    assert formats.size(count) == text
