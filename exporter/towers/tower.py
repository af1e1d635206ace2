"""Tower, a servable slice of a model: a module from named inputs to named outputs."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from torch import Tensor, nn

from exporter.config.declared_model import DeclaredConfig
from exporter.config.schema import TowerConfig
from exporter.dims.plan import DimPlan
from exporter.spec import TowerName


class ServedModule(nn.Module, ABC):
    """Module of a tower in two steps, lookup and compute, which can also be packaged one by one."""

    row_limits: Mapping[str, int] = MappingProxyType({})  # largest entries of lengths; none is limited

    @abstractmethod
    def lookup(self, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Check the inputs and look them up: feature groups under TorchEasyRec's keys (`uih.sequence`)."""

    @abstractmethod
    def compute(self, embedded: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Compute the outputs, by name, from embedded feature groups."""

    def limit_rows(self, limits: Mapping[str, int]) -> None:
        """Let `lookup` demand of these inputs that no entry is larger."""
        self.row_limits = dict(limits)

    def demands(self, inputs: Mapping[str, Tensor]) -> tuple[str, ...]:
        """Return the demands of `lookup` on inputs, in words; a package names an unmet one by number."""
        return ()

    def remarks(self) -> tuple[str, ...]:
        """Return how outputs differ from those of TorchEasyRec's own export, for the manifest."""
        return ()

    def check_weights(self) -> None:
        """Raise CheckpointError if the weights, though all there, are not those of a model to serve."""
        return

    def settle_ties(
        self,
        inputs: Mapping[str, Tensor],
        expected: Mapping[str, Tensor],
        actual: Mapping[str, Tensor],
        error: float,
    ) -> dict[str, Tensor]:
        """Return the expected outputs on these inputs, with ties among ids decided as in `actual`.

        A tie is a choice that a difference of `error`, as a fraction of what is compared, may turn over.
        """
        return dict(expected)

    def forward(self, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return self.compute(self.lookup(inputs))


@dataclass(frozen=True, kw_only=True)
class Tower:
    """A tower, or one of its two parts, ready to be traced.

    The module's forward takes one dict of tensors, keyed and ordered as `plan.inputs`, and returns a
    dict of tensors keyed by output name. Its parameters and buffers carry the checkpoint's names.
    """

    config: TowerConfig
    module: nn.Module
    plan: DimPlan

    @property
    def name(self) -> TowerName:
        return self.config.name

    @property
    def title(self) -> str:
        """Name of the tower in errors: "user tower", "model tower of family deepfm"."""
        model = self.config.pipeline.model
        return f"{self.name} tower of family {model.family}" if self.is_declared else f"{self.name} tower"

    @property
    def is_declared(self) -> bool:
        """Return whether a custom family declares the tower."""
        return isinstance(self.config.pipeline.model, DeclaredConfig)

    @property
    def served(self) -> ServedModule:
        """Module of the whole tower; a part of a tower has none."""
        assert isinstance(self.module, ServedModule)
        return self.module


def settle_ties(
    module: nn.Module,
    inputs: Mapping[str, Tensor],
    expected: Mapping[str, Tensor],
    actual: Mapping[str, Tensor],
    *,
    error: float,
) -> dict[str, Tensor]:
    """Return what `ServedModule.settle_ties` returns; a module of another kind has no ties."""
    if not isinstance(module, ServedModule):
        return dict(expected)
    return module.settle_ties(inputs, expected, actual, error)
