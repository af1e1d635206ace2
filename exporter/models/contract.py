"""What a tower demands of its inputs' values; a compiled package still checks it and refuses.

B rows. Sizes are the dim plan's business: a package checks them when it runs with input checks on.
"""

from collections.abc import Iterable, Mapping

import torch
from torch import Tensor

from exporter.config.schema import Feature


def checked(inputs: Mapping[str, Tensor], features: Iterable[Feature]) -> dict[str, Tensor]:
    """The inputs, if lengths and ids are what they must be; else the call raises RuntimeError.

    A compiled package is free to compute other things before it raises. What is returned is therefore
    safe to compute with even then: where a demand fails, lengths are 0, and ids are some row's.

    `torch._assert_async` is what survives AOTInductor with its message; `torch._check` on an `.item()`
    survives as "Expected u6 >= 0 but received -1", and costs a synchronisation on a GPU.
    """
    safe = dict(inputs)
    first_of: dict[str, str] = {}  # sequence -> the `.lengths` that its other features are held against
    for feature in features:
        values, lengths = f"{feature.name}.values", f"{feature.name}.lengths"
        if feature.table is not None:
            rows, table = feature.table.rows, feature.table.name
            _demand(
                ((inputs[values] >= 0) & (inputs[values] < rows)).all(),
                f"{values} has an id outside the {rows} rows of table {table}",
            )
            safe[values] = inputs[values].clamp(0, rows - 1)
        else:
            _read(inputs[values], values)
            if not feature.is_sequence:
                continue
        elements = values
        if feature.is_sequence and feature.is_multivalued:
            elements = f"{feature.name}.key_lengths"
            safe[elements] = _adding_up(inputs[elements], inputs[values].shape[0], elements)
        first = first_of.setdefault(feature.sequence.name, lengths) if feature.sequence else lengths
        if first == lengths:
            safe[lengths] = _adding_up(inputs[lengths], inputs[elements].shape[0], lengths)
        else:
            _demand((inputs[lengths] == inputs[first]).all(), f"{lengths} differs from {first}")
            safe[lengths] = safe[first]
    return safe


def _read(values: Tensor, name: str) -> None:
    """Touch every value, whatever it is: a package checks the sizes of those inputs only that it reads."""
    is_nan = values.isnan()
    _demand((is_nan | ~is_nan).all(), f"{name} could not be read")


def _adding_up(lengths_B: Tensor, total: int, name: str) -> Tensor:
    # None above `total`, because a sum of large ones may overflow back to it.
    adds_up = ((lengths_B >= 0) & (lengths_B <= total)).all() & (lengths_B.sum() == total)
    _demand(adds_up, f"{name} has a negative length, or does not add up to the number of values")
    return lengths_B.long() * adds_up


def _demand(holds: Tensor, otherwise: str) -> None:
    torch._assert_async(holds, otherwise)  # noqa: SLF001  there is no public spelling of it
