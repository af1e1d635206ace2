"""Model config of a tower that a custom family declares; Slipway knows nothing of it but its inputs."""

from dataclasses import dataclass
from typing import ClassVar

from exporter.config.family import FamilyConfig
from exporter.declaration import TowerDeclaration
from exporter.spec import TowerName


@dataclass(frozen=True, kw_only=True)
class DeclaredConfig(FamilyConfig):
    """Config of a declared tower, whose module the family builds."""

    family: str
    declaration: TowerDeclaration
    origin: str = ""  # digest of the config, and of the family's file where no package offers it
    is_own: bool = False  # the caller's own, which no package offers
    towers: ClassVar[tuple[TowerName, ...]] = tuple(TowerName)

    def reads(self, _tower: TowerName, _group: str) -> bool:
        """Return False: a declared tower has no feature groups."""
        return False
