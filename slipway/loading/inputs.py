"""The inputs of a tower: checked before a call, and explained after a package has refused them."""

import re
from collections.abc import Iterator, Mapping, Sequence
from operator import attrgetter

import torch
from torch import Tensor

from slipway.loading.dtypes import dtype_of
from slipway.loading.errors import ArtifactInvalid, InputRefused
from slipway.loading.layout.manifest import TensorEntry, Tower

_DEMAND = re.compile(r"<= 0 but received (\d+)\s*$", re.MULTILINE)
_DTYPE = attrgetter("dtype")
# What a feature's lengths count, by the last part of its inputs' names.
_COUNTED = (("lengths", "key_lengths"), ("lengths", "values"), ("key_lengths", "values"))


class InputCheck:
    """Puts inputs into the order of the first package, if they are those of the manifest."""

    def __init__(self, tower: Tower, order: Sequence[str], device: torch.device) -> None:
        """Check inputs of this tower.

        Raises:
            ArtifactInvalid: the package takes other inputs than the manifest lists.
        """
        by_name = {entry.name: entry for entry in tower.inputs}
        if sorted(order) != sorted(by_name):
            raise ArtifactInvalid(
                f"the {tower.name} tower takes {', '.join(order)}, "
                f"and the manifest lists {', '.join(by_name)}"
            )
        self._entries = by_name
        self._order = tuple(order)
        self._ranks = [len(by_name[name].shape) for name in order]
        try:
            self._dtypes = [dtype_of(by_name[name].dtype) for name in order]
        except ValueError as error:
            raise ArtifactInvalid(f"the {tower.name} tower: {error}") from error
        self._device = device

    def in_order(self, inputs: Mapping[str, Tensor]) -> list[Tensor]:
        """Return the inputs as a package takes them; sizes and devices are left to its own checks.

        Raises:
            InputRefused: one is missing or unknown, no tensor, or of another dtype or rank.
        """
        try:
            values = [inputs[name] for name in self._order]
            # Whole lists are compared, as a loop over single inputs takes twice as long.
            if list(map(_DTYPE, values)) != self._dtypes or list(map(Tensor.dim, values)) != self._ranks:
                raise self._mistyped(inputs)
            if not all(map(Tensor.is_contiguous, values)):
                values = [value.contiguous() for value in values]
        except KeyError:
            raise self._misnamed(inputs) from None
        except (AttributeError, TypeError):
            raise self._no_tensor(inputs) from None
        if len(inputs) != len(values):
            raise self._misnamed(inputs)
        return values

    def _misnamed(self, inputs: Mapping[str, Tensor]) -> InputRefused:
        missing = [name for name in self._entries if name not in inputs]
        unknown = [str(name) for name in inputs if name not in self._entries]
        problems = [f"there is no {', '.join(missing)}"] if missing else []
        problems += [f"the tower takes no {', '.join(unknown)}"] if unknown else []
        return InputRefused("; ".join(problems), where=(missing or unknown)[0])

    @staticmethod
    def _no_tensor(inputs: object) -> InputRefused:
        if not isinstance(inputs, Mapping):
            return InputRefused(f"inputs are a dict of tensors by name, not {type(inputs).__name__}")
        name = next(name for name, value in inputs.items() if not isinstance(value, Tensor))
        return InputRefused(f"{name} is no tensor: {type(inputs[name]).__name__}", where=name)

    def _mistyped(self, inputs: Mapping[str, Tensor]) -> InputRefused:
        for name, dtype, rank in zip(self._order, self._dtypes, self._ranks, strict=True):
            if inputs[name].dtype is not dtype or inputs[name].dim() != rank:
                return self._wrong(name, inputs[name])
        raise AssertionError("asked about inputs that are right")

    def misplaced(self, inputs: Mapping[str, Tensor]) -> InputRefused | None:
        """Return what is wrong if an input is on another kind of device."""
        for name, value in inputs.items():
            if value.device.type != self._device.type:
                return self._wrong(name, value)
        return None

    def _wrong(self, name: str, value: Tensor) -> InputRefused:
        found = f"{str(value.dtype).removeprefix('torch.')} {list(value.shape)} on {value.device}"
        wanted = f"{self._entries[name]} on {self._device}"
        return InputRefused(f"{wanted} is taken, not {found}", where=name)


def explain_refusal(tower: Tower, inputs: Mapping[str, Tensor], refusal: str) -> InputRefused | None:
    """Return what is wrong with inputs that a package has refused, in the manifest's words.

    Return None if nothing is wrong with them that can be told.
    """
    lengths = dict(_lengths(inputs))
    for where, problem in (*_sizes(tower, inputs), *_demands(tower, refusal)):
        return InputRefused("; ".join(filter(None, [problem, lengths.get(where)])), where=where)
    for where, problem in lengths.items():
        return InputRefused(f"{where}: {problem}", where=where)
    return None


def _sizes(tower: Tower, inputs: Mapping[str, Tensor]) -> Iterator[tuple[str, str]]:
    """Yield sizes outside their bounds, and sizes that should be equal and are not."""
    dims = {dim.name: dim for dim in tower.dims}
    first: dict[str, tuple[TensorEntry, int]] = {}
    for entry in tower.inputs:
        for axis, (wanted, size) in enumerate(zip(entry.shape, inputs[entry.name].shape, strict=True)):
            if isinstance(wanted, int):
                if size != wanted:
                    yield (
                        entry.name,
                        f"{entry.name}: its axis {axis} has {size:,} elements instead of {wanted:,}",
                    )
                continue
            other, known = first.setdefault(wanted, (entry, size))
            if size != known:
                yield (
                    entry.name,
                    f"{entry.name} has {size:,} elements and {other.name} {known:,}: both are {wanted}",
                )
            dim = dims.get(wanted)
            if dim is not None and (size < dim.low or (dim.high is not None and size > dim.high)):
                most = f" to {dim.high:,}" if dim.high is not None else " or more"
                yield entry.name, f"{entry.name}: {wanted} is {size:,}, and must be {dim.low:,}{most}"


def _demands(tower: Tower, refusal: str) -> Iterator[tuple[str, str]]:
    """Yield the demand whose number the refusal gives."""
    number = _DEMAND.search(refusal)
    if number and 0 < int(number[1]) <= len(tower.demands):
        demand = tower.demands[int(number[1]) - 1]
        yield demand.partition(" ")[0], demand


def _lengths(inputs: Mapping[str, Tensor]) -> Iterator[tuple[str, str]]:
    """Yield lengths that do not add up to the number of what they count."""
    for name, lengths in inputs.items():
        feature, _, part = name.rpartition(".")
        for counting, counted in _COUNTED:
            other = inputs.get(f"{feature}.{counted}")
            if part != counting or other is None:
                continue
            total, there = int(lengths.sum()), len(other)
            if total != there or bool((lengths < 0).any()):
                relation = "exceed" if total > there else "fall short of"
                yield name, f"they add up to {total:,}, and {relation} the {there:,} {counted}"
            break
