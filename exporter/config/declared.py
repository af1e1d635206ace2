"""The model of a tower that a family of one's own declares: of it Slipway knows the inputs only."""

from dataclasses import dataclass

from exporter.declaration import TowerDeclaration


@dataclass(frozen=True, kw_only=True)
class DeclaredConfig:
    """A declared tower; the family builds the module."""

    family: str
    declaration: TowerDeclaration
