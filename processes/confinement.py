"""What a child process is given of its parent: the variables it may see, and how much it may use up."""

from collections.abc import Mapping
from dataclasses import dataclass, field

ANY_END = "*"


@dataclass(frozen=True, kw_only=True)
class Confinement:
    """The least that a child needs; everything else is kept from it."""

    variables: tuple[str, ...]  # names; one that ends in * stands for all that begin so
    limits: Mapping[str, int] = field(default_factory=dict)  # by the names of RLIMIT_*, in lower case

    def permits(self, variable: str) -> bool:
        """Whether the child may see this variable of its parent's environment."""
        return any(
            variable.startswith(name.removesuffix(ANY_END)) if name.endswith(ANY_END) else variable == name
            for name in self.variables
        )


def format_limits(limits: Mapping[str, int]) -> str:
    """As the guard reads them: `core=0,nofile=1024`."""
    return ",".join(f"{name}={value}" for name, value in sorted(limits.items()))
