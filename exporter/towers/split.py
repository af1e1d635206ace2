"""A tower as one module, or as two: the lookups in its tables, and the dense part behind them."""

from collections.abc import Mapping
from dataclasses import replace

from torch import Tensor, nn

from exporter.dims.plan import group_tensor_name, plan_group_tensors
from exporter.towers.tower import ServedModule, Tower


class Lookups(nn.Module):
    """Input tensors to embedded groups, under the names of the dense package's inputs."""

    def __init__(self, served: ServedModule) -> None:
        super().__init__()
        self.served = served

    def forward(self, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        embedded = self.served.lookup(inputs)
        return {group_tensor_name(key): value for key, value in sorted(embedded.items())}


class Dense(nn.Module):
    """Embedded groups to outputs. Tables are no part of the package: nothing here reads them."""

    def __init__(self, served: ServedModule) -> None:
        super().__init__()
        self.served = served

    def forward(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return self.served.compute({_group_key(name): value for name, value in tensors.items()})


def split(tower: Tower, *, max_batch_size: int) -> tuple[Tower, Tower]:
    """The sparse and the dense part; what the first returns is, name by name, what the second takes."""
    plan = plan_group_tensors(tower.config.pipeline, max_batch_size=max_batch_size)
    return (
        replace(tower, module=Lookups(tower.served).eval()),
        replace(tower, module=Dense(tower.served).eval(), plan=plan),
    )


def _group_key(name: str) -> str:
    """The embedded group's key that `group_tensor_name` made a name of."""
    group, _, part = name.rpartition("__")
    return group if part == "ebc" else f"{group}.{part}"
