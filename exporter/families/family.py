"""What a model family of one's own is written against: the class to derive from, and what to declare with.

An installed package offers a family as an entry point of the group `slipway.families`; the guide to it is
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
    """How to build the towers of a model, and what they take.

    The config is the text that came with the export, in whatever form the family likes.
    """

    training_only: tuple[str, ...] = ()  # how names of weights begin that no tower serves

    @abstractmethod
    def towers(self, config: str) -> Sequence[TowerDeclaration]:
        """Every tower of the model that this config describes."""

    @abstractmethod
    def build(self, config: str, tower: TowerName) -> nn.Module:
        """The tower's module, untrained.

        Its forward takes one dict with the declared inputs, and returns a dict of tensors whose first axis
        is that of an input. The names in its state dict are the checkpoint's, whose own may begin with
        "model.". For two_stage it is a `TwoStep` as well.
        """


@runtime_checkable
class TwoStep(Protocol):
    """A module that can be packaged as two: what tables hold, and what is computed from it."""

    def lookup(self, inputs: dict[str, Tensor]) -> Mapping[str, Tensor]:
        """The tensors that the tower's declaration lists as `embedded`."""

    def compute(self, embedded: dict[str, Tensor]) -> Mapping[str, Tensor]:
        """The outputs, from those tensors; together with `lookup` what forward does."""
