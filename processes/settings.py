"""What the environment gives: to child processes, with changes; and a place for what can be made again."""

import os
from collections.abc import Mapping
from pathlib import Path


def inherited_environment(changes: Mapping[str, str | None]) -> dict[str, str]:
    """This process's environment with `changes` laid over it; None removes a variable."""
    environment: dict[str, str | None] = {**os.environ, **changes}
    return {name: value for name, value in environment.items() if value is not None}


def user_cache(name: str) -> Path:
    """The folder of this name in which Slipway keeps for the user what can be made again."""
    given = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(given) if given.startswith("/") else Path.home() / ".cache") / "slipway" / name
