"""Interface of custom model families: the class to derive from, and the classes of declarations.

An installed package offers a family as an entry point of the group `slipway.families`. The guide is
docs/families.md.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Protocol, runtime_checkable

from torch import Tensor, nn

from exporter.declaration import DimDeclaration, InputDeclaration, TensorDeclaration, TowerDeclaration
from exporter.families.yaml_text import declaration_from_yaml
from exporter.spec import TowerName

__all__ = [
    "DimDeclaration",
    "Family",
    "InputDeclaration",
    "TensorDeclaration",
    "TowerDeclaration",
    "TowerName",
    "TwoStep",
    "declaration_from_yaml",
]


class Family(ABC):
    """A custom model family: it declares the inputs of a model's towers, and builds their modules.

    The config is the text that came with the export, in any form that the family chooses.
    """

    training_only: tuple[str, ...] = ()  # prefixes of the names of weights that no tower serves

    @abstractmethod
    def towers(self, config: str) -> Sequence[TowerDeclaration]:
        """Return the declaration of every tower of the model that this config describes."""

    @abstractmethod
    def build(self, config: str, tower: TowerName) -> nn.Module:
        """Return the tower's module, untrained.

        Its forward takes one dict with the declared inputs, and returns a dict of tensors whose first axis
        is that of an input. The names in its state dict are the checkpoint's, which may begin with "model."
        in the checkpoint. For mode two_stage the module is a `TwoStep` as well.
        """

    def trained_part(self, module: nn.Module) -> nn.Module:
        """Return the part of a built module whose state dict has the checkpoint's names; by default all."""
        return module

    def require_faithful(self, module: nn.Module, tower: TowerName) -> None:
        """Refuse a module, filled with its weights, that is not the one that was meant.

        By default nothing is known of it. Raise an error of exporter.errors, or any other.
        """
        return


@runtime_checkable
class TwoStep(Protocol):
    """A module that can be packaged in two parts: lookups in tables, and the computation behind them."""

    def lookup(self, inputs: dict[str, Tensor]) -> Mapping[str, Tensor]:
        """Return the tensors that the tower's declaration lists as `embedded`."""

    def compute(self, embedded: dict[str, Tensor]) -> Mapping[str, Tensor]:
        """Return the outputs from those tensors; `lookup` and `compute` together do what forward does."""
