"""All lies, by what they are about."""

from tests.planted.lies import about_cache, about_calls, about_code, about_publishing
from tests.planted.lies.lie import Lie

LIES: tuple[Lie, ...] = (*about_code.LIES, *about_cache.LIES, *about_calls.LIES, *about_publishing.LIES)


def lie_named(name: str) -> Lie:
    """Return the lie of this name."""
    return next(lie for lie in LIES if lie.name == name)
