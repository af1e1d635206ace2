"""Served module of a custom family's tower: inputs are checked against their declaration, outputs are not.

B rows.
"""

from collections.abc import Mapping
from typing import cast

import torch
from torch import Tensor, nn

from exporter.declaration import ROWS, InputDeclaration, TowerDeclaration
from exporter.errors import InvalidDeclaration
from exporter.families.family import TwoStep
from exporter.models.contract import Demands, read_all_values
from exporter.towers.tower import ServedModule


class DeclaredModule(ServedModule):
    """The family's module behind the checks that its package makes of inputs."""

    def __init__(self, module: nn.Module, declaration: TowerDeclaration) -> None:
        super().__init__()
        self.module = module
        self._declaration = declaration

    def lookup(self, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return self._require_dict(cast(TwoStep, self.module).lookup(self._check(inputs)))

    def compute(self, embedded: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return self._require_dict(cast(TwoStep, self.module).compute(dict(embedded)))

    def demands(self, inputs: Mapping[str, Tensor]) -> tuple[str, ...]:
        return tuple(_demand(inputs, self._declaration, self.row_limits)[0].messages)

    def forward(self, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return self._require_dict(self.module(self._check(inputs)))

    def _require_dict(self, outputs: object) -> dict[str, Tensor]:
        if not isinstance(outputs, Mapping):
            raise InvalidDeclaration(
                f"the {self._declaration.name} tower's module returns {type(outputs).__name__}, not a dict",
                hint="return a dict from names to tensors",
            )
        return dict(outputs)

    def _check(self, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        demands, safe = _demand(inputs, self._declaration, self.row_limits)
        demands.raise_if_unmet()
        return safe


def _demand(
    inputs: Mapping[str, Tensor], declaration: TowerDeclaration, row_limits: Mapping[str, int]
) -> tuple[Demands, dict[str, Tensor]]:
    """Return the demands on the inputs, and the inputs with safe values where a demand is not met."""
    demands = Demands()
    safe = dict(inputs)
    for tensor in declaration.filled:
        safe[tensor.name] = _values(inputs[tensor.name], tensor, demands)
    by_dim: dict[str, str] = {}  # dim -> the lengths that all other lengths of its elements must equal
    for tensor in declaration.counting:
        name, dim = tensor.name, declaration.counted_by(tensor.name)[0].dim
        lengths_B, first = inputs[name], by_dim.setdefault(dim, name)
        if dim == ROWS:
            demands.add((lengths_B == 1).all(), f"{name} is not 1 in every row")
            safe[name] = torch.ones_like(lengths_B)
        elif first == name:
            total = inputs[declaration.counted_by(name)[0].name].shape[0]
            safe[name] = demands.require_sum(lengths_B, total, name).to(lengths_B.dtype)
        else:
            demands.add((lengths_B == inputs[first]).all(), f"{name} differs from {first}")
            safe[name] = safe[first].to(lengths_B.dtype)
    demands.require_limits(inputs, row_limits)
    return demands, safe


def _values(values: Tensor, tensor: InputDeclaration, demands: Demands) -> Tensor:
    if tensor.table_rows is None:
        demands.add(read_all_values(values), f"{tensor.name} could not be read")
        return values
    outside = f"{tensor.name} has an id outside its table of {tensor.table_rows} rows"
    return demands.require_ids(values, tensor.table_rows, outside)
