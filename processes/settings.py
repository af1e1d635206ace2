"""The environment that child processes inherit: read here, changed only for the child."""

import os
from collections.abc import Mapping


def inherited_environment(changes: Mapping[str, str | None]) -> dict[str, str]:
    """This process's environment with `changes` laid over it; None removes a variable."""
    environment: dict[str, str | None] = {**os.environ, **changes}
    return {name: value for name, value in environment.items() if value is not None}
