"""Checks of a tower's input values, traced into its package, so that a package refuses bad inputs as well.

B rows. Sizes are checked elsewhere: a package compares them with the dim plan when its input checks are on.
"""

from collections.abc import Iterable, Mapping
from typing import cast

import torch
from torch import Tensor

from exporter.config.schema import Feature


def check_inputs(
    inputs: Mapping[str, Tensor], features: Iterable[Feature], row_limits: Mapping[str, int] | None = None
) -> dict[str, Tensor]:
    """Return the inputs if all lengths and ids are valid; otherwise the call raises RuntimeError.

    A compiled package may compute other things before it raises. The returned tensors are therefore safe
    to compute with even then: where a demand is not met, lengths are 0, and ids are clamped to the table.
    """
    demands, safe = _demand(inputs, features, row_limits or {})
    demands.raise_if_unmet()
    return safe


def list_demands(
    inputs: Mapping[str, Tensor], features: Iterable[Feature], row_limits: Mapping[str, int]
) -> tuple[str, ...]:
    """Return what `check_inputs` demands, in words; a package that fails with number n means the n-th."""
    demands, _ = _demand(inputs, features, row_limits)
    return tuple(demands.messages)


def _demand(
    inputs: Mapping[str, Tensor], features: Iterable[Feature], row_limits: Mapping[str, int]
) -> tuple["Demands", dict[str, Tensor]]:
    demands = Demands()
    safe = dict(inputs)
    first_of: dict[str, str] = {}  # sequence -> the `.lengths` that those of its other features must equal
    for feature in features:
        values, lengths = f"{feature.name}.values", f"{feature.name}.lengths"
        if feature.table is not None:
            if feature.table.id_map is None:  # a map takes any id
                rows, table = feature.table.rows, feature.table.name
                safe[values] = demands.require_ids(
                    inputs[values], rows, f"{values} has an id outside the {rows} rows of table {table}"
                )
        else:
            demands.add(read_all_values(inputs[values]), f"{values} could not be read")
            if not feature.is_sequence:
                continue
        elements = values
        if feature.is_sequence and feature.is_multivalued:
            elements = f"{feature.name}.key_lengths"
            total = inputs[values].shape[0]
            safe[elements] = demands.require_sum(inputs[elements], total, elements)
        first = first_of.setdefault(feature.sequence.name, lengths) if feature.sequence else lengths
        if first == lengths:
            safe[lengths] = demands.require_sum(inputs[lengths], inputs[elements].shape[0], lengths)
        else:
            demands.add((inputs[lengths] == inputs[first]).all(), f"{lengths} differs from {first}")
            safe[lengths] = safe[first]
    demands.require_limits(inputs, row_limits)
    return demands, safe


class Demands:
    """Conditions that inputs must meet, checked together as one number: that of the last one not met, or 0.

    They are written in as few operations as possible, because each becomes loops of the package, which take
    their share of its compile time.

    The host reads the number and checks it, in a package as well, which then says "Expected u6 <= 0 but
    received 3". An assertion on the device would keep its message, but a package checks it inside a loop
    over threads, which no exception can leave: it would end the process.
    """

    def __init__(self) -> None:
        self._unmet: Tensor | None = None
        self.messages: list[str] = []

    def add(self, holds: Tensor, otherwise: str) -> None:
        """Demand that `holds` is true; `otherwise` is the message if it is not."""
        self.messages.append(otherwise)
        self._unmet = torch.where(holds, 0 if self._unmet is None else self._unmet, len(self.messages))

    def require_sum(self, lengths_B: Tensor, total: int, name: str) -> Tensor:
        """Demand that lengths add up to `total`; return them as int64, or zeros if they do not."""
        # No length may exceed `total`, because a sum of large ones may overflow to it.
        is_other = (lengths_B.clamp(0, total) != lengths_B).any()
        adds_up = ~is_other & (lengths_B.sum() == total)
        self.add(adds_up, f"{name} has a negative length, or does not add up to the number of values")
        return lengths_B.long() * adds_up

    def require_ids(self, ids: Tensor, rows: int, otherwise: str) -> Tensor:
        """Demand that ids are row numbers of a table; return them clamped to its rows."""
        safe = ids.clamp(0, rows - 1)
        self.add(~(safe != ids).any(), otherwise)
        return safe

    def require_limits(self, inputs: Mapping[str, Tensor], limits: Mapping[str, int]) -> None:
        """Demand that no entry of these inputs is larger than its limit."""
        for name, most in limits.items():
            self.add(
                (inputs[name] <= most).all(),
                f"{name} has an entry of more than {most:,}, and no more was tried: strict_bounds",
            )

    def raise_if_unmet(self) -> None:
        """Raise RuntimeError if a demand is not met."""
        if self._unmet is not None:
            number = cast(int, self._unmet.item())
            torch._check(number == 0, lambda: self.messages[number - 1])  # noqa: SLF001  public, despite its name


def read_all_values(values: Tensor) -> Tensor:
    """Read every value and return true: a package checks the sizes of only those inputs that it reads."""
    is_zero = (values == 0).any()
    return is_zero | ~is_zero
