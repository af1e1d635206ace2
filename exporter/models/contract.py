"""What a tower demands of its inputs' values; a compiled package still checks it and refuses.

B rows. Sizes are the dim plan's business: a package checks them when it runs with input checks on.
"""

from collections.abc import Iterable, Mapping
from typing import cast

import torch
from torch import Tensor

from exporter.config.schema import Feature


def checked(inputs: Mapping[str, Tensor], features: Iterable[Feature]) -> dict[str, Tensor]:
    """The inputs, if lengths and ids are what they must be; else the call raises RuntimeError.

    A compiled package is free to compute other things before it raises. What is returned is therefore
    safe to compute with even then: where a demand fails, lengths are 0, and ids are some row's.
    """
    demands, safe = _demanded(inputs, features)
    demands.raise_if_unmet()
    return safe


def demands_of(inputs: Mapping[str, Tensor], features: Iterable[Feature]) -> tuple[str, ...]:
    """What `checked` demands, in words: the n-th is what a package means that refuses with number n."""
    demands, _ = _demanded(inputs, features)
    return tuple(demands.messages)


def _demanded(
    inputs: Mapping[str, Tensor], features: Iterable[Feature]
) -> tuple["Demands", dict[str, Tensor]]:
    demands = Demands()
    safe = dict(inputs)
    first_of: dict[str, str] = {}  # sequence -> the `.lengths` that its other features are held against
    for feature in features:
        values, lengths = f"{feature.name}.values", f"{feature.name}.lengths"
        if feature.table is not None:
            rows, table = feature.table.rows, feature.table.name
            safe[values] = demands.ids(
                inputs[values], rows, f"{values} has an id outside the {rows} rows of table {table}"
            )
        else:
            demands.add(read(inputs[values]), f"{values} could not be read")
            if not feature.is_sequence:
                continue
        elements = values
        if feature.is_sequence and feature.is_multivalued:
            elements = f"{feature.name}.key_lengths"
            total = inputs[values].shape[0]
            safe[elements] = demands.adding_up(inputs[elements], total, elements)
        first = first_of.setdefault(feature.sequence.name, lengths) if feature.sequence else lengths
        if first == lengths:
            safe[lengths] = demands.adding_up(inputs[lengths], inputs[elements].shape[0], lengths)
        else:
            demands.add((inputs[lengths] == inputs[first]).all(), f"{lengths} differs from {first}")
            safe[lengths] = safe[first]
    return demands, safe


class Demands:
    """Conditions gathered on the way, and checked as one number: that of the last one that does not hold.

    The number is read by the host and checked there, and so it is in a package, which then says
    "Expected u6 <= 0 but received 3". An assertion on the device would keep its message, but a package
    checks it inside of a loop over threads, out of which no exception can come: it ends the process.
    """

    def __init__(self) -> None:
        self._unmet: list[Tensor] = []
        self.messages: list[str] = []

    def add(self, holds: Tensor, otherwise: str) -> None:
        """Demand a condition; `otherwise` says what its failure means."""
        self.messages.append(otherwise)
        self._unmet.append(torch.where(holds, 0, len(self.messages)))

    def adding_up(self, lengths_B: Tensor, total: int, name: str) -> Tensor:
        """The lengths as int64, if they add up to `total`, and zeros if they do not."""
        # None above `total`, because a sum of large ones may overflow back to it.
        adds_up = ((lengths_B >= 0) & (lengths_B <= total)).all() & (lengths_B.sum() == total)
        self.add(adds_up, f"{name} has a negative length, or does not add up to the number of values")
        return lengths_B.long() * adds_up

    def ids(self, ids: Tensor, rows: int, otherwise: str) -> Tensor:
        """The ids, if all are rows of a table; and some row's where they are not."""
        self.add(((ids >= 0) & (ids < rows)).all(), otherwise)
        return ids.clamp(0, rows - 1)

    def raise_if_unmet(self) -> None:
        """RuntimeError where a demand is not met."""
        if self._unmet:
            number = cast(int, torch.stack(self._unmet).max().item())
            torch._check(number == 0, lambda: self.messages[number - 1])  # noqa: SLF001  public, despite its name


def read(values: Tensor) -> Tensor:
    """Touch every value, whatever it is: a package checks the sizes of those inputs only that it reads."""
    is_nan = values.isnan()
    return (is_nan | ~is_nan).all()
