"""The declaration that an example proposes, with the caller's corrections of its dims."""

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Self

import torch
from pydantic import Field, ValidationError, model_validator

from exporter.declaration import (
    ROWS,
    DimDeclaration,
    InputDeclaration,
    TowerDeclaration,
    invalid_declaration,
)
from exporter.errors import InvalidDeclaration
from exporter.families.handover.example import Example, ExampleInput
from exporter.frozen import Frozen
from exporter.redaction import name_first
from exporter.spec import TowerName

_HINT = "correct it in dims; the plan lists all dims by name"

Bounds = tuple[int, int | None]  # smallest and largest size in a call; None: unbounded
GivenCorrection = Bounds | Sequence[str] | Mapping[str, object]


class Correction(Frozen):
    """A correction of one dim; what is None stays as it was proposed."""

    low: int | None = Field(default=None, ge=0)
    high: int | None = Field(default=None, ge=1)
    high_per_row: int | None = Field(default=None, ge=1)
    inputs: tuple[str, ...] = ()  # that have this dim in common

    @model_validator(mode="after")
    def _bounds_agree(self) -> Self:
        if self.low is not None and self.high is not None and self.low > self.high:
            raise ValueError(f"its smallest size, {self.low}, is above its largest, {self.high}")
        if self.high is not None and self.high_per_row is not None:
            raise ValueError("it has both high and high_per_row: give one of them")
        return self


def read_corrections(given: Mapping[str, GivenCorrection]) -> dict[str, Correction]:
    """Return corrections by the names of dims.

    Each is a pair (smallest, largest) of sizes in a call, with None for no bound; or the names of inputs that
    have the dim in common; or a dict with `low`, `high` or `high_per_row`, and `inputs`.

    Raises:
        InvalidDeclaration: one is none of these, or contradicts itself; naming the dim.
    """
    corrections: dict[str, Correction] = {}
    for name, value in given.items():
        try:
            corrections[name] = Correction.model_validate(_fields_of(name, value))
        except ValidationError as error:
            invalid = invalid_declaration(error)
            raise InvalidDeclaration(f"dims: {name}: {invalid.message}", hint=_HINT, where=name) from error
    return corrections


def _fields_of(name: str, value: object) -> Mapping[str, object]:
    if isinstance(value, Mapping):
        return value
    if isinstance(value, tuple | list):
        if value and all(isinstance(each, str) for each in value):
            return {"inputs": tuple(value)}
        if len(value) == 2 and all(each is None or type(each) is int for each in value):
            return {"low": value[0], "high": value[1]}
    raise InvalidDeclaration(
        f"dims: {name} is {value!r}, and no correction",
        hint="give (smallest, largest), with None for no bound; the names of the inputs that share it; or a "
        "dict with low, high or high_per_row, and inputs",
        where=name,
    )


def propose_rows(corrections: Mapping[str, Correction], *, otherwise: int) -> int:
    """Return the largest batch.

    Raises:
        InvalidDeclaration: the batch is corrected to what no batch can be.
    """
    batch = corrections.get(ROWS)
    if batch is None:
        return otherwise
    if batch.inputs or batch.high_per_row is not None or batch.low not in (None, 1):
        raise InvalidDeclaration(
            f"dims: {ROWS} is the rows of a call, from 1 to the largest number that a package accepts",
            hint=f"correct its largest size: dims={{{ROWS!r}: (1, 512)}}",
            where=ROWS,
        )
    return otherwise if batch.high is None else batch.high


def propose_tower(
    tower: TowerName, example: Example, table_rows: Mapping[str, int], corrections: Mapping[str, Correction]
) -> TowerDeclaration:
    """Return the declaration of a tower whose example has these inputs.

    Every count of elements has a dim of its own, unless a correction joins them.

    Raises:
        InvalidDeclaration: a correction does not fit the example.
    """
    dims = _join_dims(example, corrections)
    declared = [
        _declare_dim(name, [counts for counts, dim in dims.items() if dim == name], example, corrections)
        for name in dict.fromkeys(dims.values())
    ]
    inputs = tuple(_declare_input(each, dims, table_rows) for each in example.inputs.values())
    try:
        return TowerDeclaration(name=tower, inputs=inputs, dims=tuple(declared))
    except ValidationError as error:
        raise invalid_declaration(error) from error


def require_known(corrections: Mapping[str, Correction], towers: Sequence[TowerDeclaration]) -> None:
    """Raise InvalidDeclaration for a correction of a dim that no tower has."""
    known = list(dict.fromkeys([ROWS, *(dim.name for tower in towers for dim in tower.dims)]))
    for name in corrections:
        if name not in known:
            raise InvalidDeclaration(
                f"dims: there is no dim {name}; dims are {name_first(known)}", hint=_HINT, where=name
            )


def _join_dims(example: Example, corrections: Mapping[str, Correction]) -> dict[str, str]:
    """Return the dim of each input that counts elements, by its name."""
    counting = [each for each in example.inputs.values() if each.is_lengths]
    dims: dict[str, str] = {}
    for each in counting:
        dims[each.name] = _free_name(re.sub(r"\W", "_", _counted_name(each)), dims.values())
    for name, correction in corrections.items():
        if not correction.inputs:
            continue
        if not set(correction.inputs) & example.inputs.keys():
            continue  # of another tower
        dims |= {_counts_of(name, each, example): name for each in correction.inputs}
    return dims


def _free_name(name: str, taken: Collection[str]) -> str:
    """Return a name for a dim; those that would be the same are numbered."""
    free = name = f"{name}_elements" if name == ROWS or name[:1].isdigit() else name
    number = 2
    while free in taken:
        free, number = f"{name}_{number}", number + 1
    return free


def _counted_name(lengths: ExampleInput) -> str:
    if lengths.key is not None:
        return lengths.key
    return re.sub(r"[._](lengths?|lens?)$", "", lengths.name)


def _counts_of(dim: str, name: str, example: Example) -> str:
    """Return the lengths of an input that a correction names; InvalidDeclaration if it has none."""
    found = example.inputs.get(name)
    if found is None or found.lengths is None:
        counted = [each.name for each in example.inputs.values() if each.lengths]
        raise InvalidDeclaration(
            f"dims: {dim} names {name}, which is no input with elements; these are "
            f"{name_first(counted) or 'none'}",
            hint=_HINT,
            where=dim,
        )
    return found.lengths


def _require_equal(name: str, counting: Sequence[str], example: Example) -> None:
    """Require that all inputs of a dim have equally many elements in every row."""
    first, *others = counting
    for other in others:
        if not torch.equal(example.inputs[other].tensor, example.inputs[first].tensor):
            raise InvalidDeclaration(
                f"dims: {name} joins inputs whose rows have different numbers of elements: "
                f"{first} and {other} differ in the example",
                hint="join only inputs that have equally many elements in every row, by a name that no other "
                "dim has",
                where=name,
            )


def _declare_dim(
    name: str, counting: Sequence[str], example: Example, corrections: Mapping[str, Correction]
) -> DimDeclaration:
    """Declare a dim, and hold its bounds against the example."""
    _require_equal(name, counting, example)
    correction = corrections.get(name, Correction())
    lengths = example.inputs[counting[0]].tensor
    size, longest = int(lengths.sum()), int(lengths.max())
    low, high, per_row = correction.low or 0, correction.high, correction.high_per_row
    outside = size < low or (high is not None and size > high)
    if outside or (per_row is not None and longest > per_row):
        bounds = f"at most {per_row} per row" if per_row is not None else f"{low} to {high or 'any'}"
        raise InvalidDeclaration(
            f"dims: {name} is bounded to {bounds}, and the example has {size}, in a row at most {longest}",
            hint="widen the bounds, or give an example within them",
            where=name,
        )
    try:
        return DimDeclaration(
            name=name, low=low, high=high, high_per_row=per_row, reason=f"elements of {name} of all rows"
        )
    except ValidationError as error:
        invalid = invalid_declaration(error)
        raise InvalidDeclaration(f"dims: {name}: {invalid.message}", hint=_HINT, where=name) from error


def _declare_input(
    given: ExampleInput, dims: Mapping[str, str], table_rows: Mapping[str, int]
) -> InputDeclaration:
    first = dims[given.lengths] if given.lengths is not None else ROWS
    try:
        return InputDeclaration.model_validate(
            {
                "name": given.name,
                "dtype": str(given.tensor.dtype).removeprefix("torch."),
                "shape": (first, *given.tensor.shape[1:]),
                "column": None if given.is_lengths or given.column == given.name else given.column,
                "table_rows": table_rows.get(given.name),
                "lengths": given.lengths,
            }
        )
    except ValidationError as error:
        invalid = invalid_declaration(error)
        raise InvalidDeclaration(
            f"the input {given.name}: {invalid.message}",
            hint="rename it: letters, digits, _, . and -; and give no axis of size 0",
            where=given.name,
        ) from error
