"""A tower as one module, or as two: the lookups in its tables, and the dense part behind them."""

from collections.abc import Mapping
from dataclasses import replace

from torch import Tensor, nn

from exporter.config.declared_model import DeclaredConfig
from exporter.dims.package_interface import plan_between
from exporter.towers.tower import ServedModule, Tower


class Lookups(nn.Module):
    """Input tensors to embedded groups, under the names of the dense package's inputs."""

    def __init__(self, served: ServedModule, keys: Mapping[str, str]) -> None:
        super().__init__()
        self.served = served
        self._keys = keys

    def forward(self, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        embedded = self.served.lookup(inputs)
        return {name: embedded[key] for name, key in self._keys.items()}


class Dense(nn.Module):
    """Embedded groups to outputs. Tables are no part of the package: nothing here reads them."""

    def __init__(self, served: ServedModule, keys: Mapping[str, str]) -> None:
        super().__init__()
        self.served = served
        self._keys = keys

    def forward(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return self.served.compute({self._keys[name]: value for name, value in tensors.items()})


def split_tower(tower: Tower, *, max_batch_size: int) -> tuple[Tower, Tower]:
    """The sparse and the dense part; what the first returns is, name by name, what the second takes."""
    plan = plan_between(tower.config.pipeline, max_batch_size=max_batch_size)
    named_as_declared = isinstance(tower.config.pipeline.model, DeclaredConfig)
    keys = {
        tensor.name: tensor.name if named_as_declared else _group_key(tensor.name) for tensor in plan.inputs
    }
    return (
        replace(tower, module=Lookups(tower.served, keys).eval()),
        replace(tower, module=Dense(tower.served, keys).eval(), plan=plan),
    )


def _group_key(name: str) -> str:
    """The embedded group's key that `group_tensor_name` made a name of."""
    group, _, part = name.rpartition("__")
    return group if part == "ebc" else f"{group}.{part}"
