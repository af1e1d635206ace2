"""The variables that a child process may see, and the resources that it may use."""

from collections.abc import Mapping
from dataclasses import dataclass, field

ANY_END = "*"


@dataclass(frozen=True, kw_only=True)
class Confinement:
    """The few variables and the resource limits that a child process gets."""

    variables: tuple[str, ...]  # names; a trailing * stands for any ending
    limits: Mapping[str, int] = field(default_factory=dict)  # by the name of RLIMIT_*, in lower case

    def permits(self, variable: str) -> bool:
        """True if the child may see this variable of its parent's environment."""
        return any(
            variable.startswith(name.removesuffix(ANY_END)) if name.endswith(ANY_END) else variable == name
            for name in self.variables
        )


def format_limits(limits: Mapping[str, int]) -> str:
    """Return the limits as the guard parses them: `core=0,nofile=1024`."""
    return ",".join(f"{name}={value}" for name, value in sorted(limits.items()))
