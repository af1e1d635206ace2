"""Eager lookups in front of a dense package whose tables are in shards and not in a package."""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from exporter.dims.torch_dims import input_sizes
from exporter.errors import DimPlanViolated
from exporter.towers.split import split_tower
from exporter.towers.tower import Tower

LookUp = Callable[[Mapping[str, Tensor]], dict[str, Tensor]]  # a tower's inputs -> a dense package's


def build_eager_lookup(tower: Tower, *, max_batch_size: int) -> LookUp:
    """Return a function that looks inputs up in the tower's tables, and refuses what a package would refuse.

    The function raises RuntimeError for invalid values and DimPlanViolated for sizes outside the plan.
    """
    lookups, _ = split_tower(tower, max_batch_size=max_batch_size)

    def look_up(inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        for dim, size in input_sizes(tower.plan, inputs).items():
            low, high = tower.plan.dim(dim).low, tower.plan.dim(dim).high
            if size < low or (high is not None and size > high):
                raise DimPlanViolated(f"dim {dim} is {size}, and goes from {low} to {high}", where=dim)
        with torch.no_grad():
            looked_up: dict[str, Tensor] = lookups.module(dict(inputs))
        return looked_up

    return look_up
