"""The model of a tower that a family of one's own declares: of it Slipway knows the inputs only."""

from dataclasses import dataclass
from typing import ClassVar

from exporter.config.family import FamilyConfig
from exporter.declaration import TowerDeclaration
from exporter.spec import TowerName


@dataclass(frozen=True, kw_only=True)
class DeclaredConfig(FamilyConfig):
    """A declared tower; the family builds the module."""

    family: str
    declaration: TowerDeclaration
    towers: ClassVar[tuple[TowerName, ...]] = tuple(TowerName)

    def reads(self, _tower: TowerName, _group: str) -> bool:
        """There are no groups: the module takes its inputs as they are."""
        return False
