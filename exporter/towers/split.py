"""Split a tower into two modules: the lookups in its tables, and the dense part behind them."""

from collections.abc import Mapping
from dataclasses import replace

from torch import Tensor, nn

from exporter.config.declared_model import DeclaredConfig
from exporter.dims.package_interface import bound_between, plan_between
from exporter.towers.tower import ServedModule, Tower


class Lookups(nn.Module):
    """Module from input tensors to embedded groups, under the names of the dense package's inputs."""

    def __init__(self, served: ServedModule, keys: Mapping[str, str]) -> None:
        super().__init__()
        self.served = served
        self._keys = keys

    def forward(self, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        embedded = self.served.lookup(inputs)
        return {name: embedded[key] for name, key in self._keys.items()}


class Dense(nn.Module):
    """Module from embedded groups to outputs; it reads no tables, so its package holds none."""

    def __init__(self, served: ServedModule, keys: Mapping[str, str]) -> None:
        super().__init__()
        self.served = served
        self._keys = keys

    def forward(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return self.served.compute({self._keys[name]: value for name, value in tensors.items()})


def split_tower(tower: Tower, *, max_batch_size: int) -> tuple[Tower, Tower]:
    """Return the sparse and the dense part; outputs of the first are, by name, inputs of the second."""
    plan = bound_between(plan_between(tower.config.pipeline, max_batch_size=max_batch_size), tower.plan)
    named_as_declared = isinstance(tower.config.pipeline.model, DeclaredConfig)
    keys = {
        tensor.name: tensor.name if named_as_declared else _group_key(tensor.name) for tensor in plan.inputs
    }
    return (
        replace(tower, module=Lookups(tower.served, keys).eval()),
        replace(tower, module=Dense(tower.served, keys).eval(), plan=plan),
    )


def _group_key(name: str) -> str:
    """Return the embedded group's key, from the tensor name that `group_tensor_name` gave it."""
    group, _, part = name.rpartition("__")
    return group if part == "ebc" else f"{group}.{part}"
