"""All lies, by what they are about."""

from tests.planted.lies import about_code
from tests.planted.lies.lie import Lie

LIES: tuple[Lie, ...] = (*about_code.LIES,)


def lie_named(name: str) -> Lie:
    """Return the lie of this name."""
    return next(lie for lie in LIES if lie.name == name)
