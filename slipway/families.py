"""The classes by which you describe a model of your own: `from slipway.families import Family`."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from exporter.families.family import DimDeclaration as DimDeclaration
    from exporter.families.family import Family as Family
    from exporter.families.family import InputDeclaration as InputDeclaration
    from exporter.families.family import TensorDeclaration as TensorDeclaration
    from exporter.families.family import TowerDeclaration as TowerDeclaration
    from exporter.families.family import TowerName as TowerName
    from exporter.families.family import TwoStep as TwoStep
    from exporter.families.family import declaration_from_yaml as declaration_from_yaml

_NAMES = (
    "DimDeclaration",
    "Family",
    "InputDeclaration",
    "TensorDeclaration",
    "TowerDeclaration",
    "TowerName",
    "TwoStep",
    "declaration_from_yaml",
)


def __getattr__(name: str) -> object:
    if name not in _NAMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from slipway.lazy import find_in_exporter

    return find_in_exporter("exporter.families.family", name)
