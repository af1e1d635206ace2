"""Example inputs of a module, as the plain tensors that a package takes: rows, and counted elements."""

import inspect
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from torch import Tensor, nn

from exporter.families.handover.errors import ModuleUnusable
from exporter.families.handover.given_tower import Call, JaggedArgument
from exporter.families.handover.torchrec_classes import KeyedJaggedTensor
from exporter.redaction import name_first

_LENGTHS = ("lengths", "length", "lens", "len")  # endings of names of tensors that count others' elements
_VALUES = ".values"
_SAVED = "float32, int64 or int32"

Value: TypeAlias = Tensor | KeyedJaggedTensor


@dataclass(frozen=True, kw_only=True, eq=False)
class ExampleInput:
    """One plain tensor of an example."""

    name: str
    tensor: Tensor
    column: str  # of rows that fill it
    lengths: str | None = None  # the input that counts its elements, row by row
    key: str | None = None  # of the KeyedJaggedTensor that it is a part of
    is_lengths: bool = False

    @property
    def is_whole(self) -> bool:
        return not self.tensor.is_floating_point()


@dataclass(frozen=True, kw_only=True, eq=False)
class Example:
    """The inputs of a module, by name, and the call that it takes them in."""

    call: Call
    inputs: Mapping[str, ExampleInput]
    rows: int

    def tensors(self) -> dict[str, Tensor]:
        return {name: each.tensor for name, each in self.inputs.items()}


def read_example(module: nn.Module, given: object, lengths: Mapping[str, str]) -> Example:
    """Take an example apart.

    Args:
        module: its forward is to take the example.
        given: a KeyedJaggedTensor, a tensor, a dict of these, or a tuple of positional arguments.
        lengths: for tensors whose elements others count, and whose names do not say so: the other's name.

    Raises:
        ModuleUnusable: forward does not take it, or a value or size of it is none that a package could take.
    """
    values, as_dict = _bind(module, given)
    jagged = [name for name, value in values.items() if isinstance(value, KeyedJaggedTensor)]
    arguments: dict[str, str | JaggedArgument] = {}
    inputs: list[ExampleInput] = []
    for name, value in values.items():
        if isinstance(value, KeyedJaggedTensor):
            front = f"{name}." if len(jagged) > 1 or set(value.keys()) & values.keys() else ""
            arguments[name], parts = _take_apart(name, value, front)
            inputs.extend(parts)
        else:
            arguments[name] = name
            inputs.append(ExampleInput(name=name, tensor=value.detach().cpu(), column=name))
    by_name = {each.name: each for each in inputs}
    if len(by_name) != len(inputs):
        [(name, _)] = Counter(each.name for each in inputs).most_common(1)
        raise ModuleUnusable(f"two of the example inputs are called {name}", hint="rename one", where=name)
    for each in inputs:
        _check_tensor(each)
    counted = {**_find_lengths(by_name), **_require_named(lengths, by_name)}
    for name, counts in counted.items():
        by_name[name] = replace(by_name[name], lengths=counts, column=_column_of(name, by_name))
        by_name[counts] = replace(by_name[counts], is_lengths=True)
    rows = _count_rows(by_name)
    for each in by_name.values():
        _check_sizes(each, by_name, rows)
    return Example(call=Call(arguments=arguments, as_dict=as_dict), inputs=by_name, rows=rows)


def _bind(module: nn.Module, given: object) -> tuple[dict[str, Value], bool]:
    """Return the arguments by name, and whether forward takes them as one dict."""
    signature = inspect.signature(module.forward)
    takes = f"forward takes {signature}"
    if isinstance(given, Mapping):
        names = [str(name) for name in given]
        values: dict[str, object] = {str(name): value for name, value in given.items()}
        if not values:
            raise ModuleUnusable("the example inputs are empty", hint=takes, where="example_inputs")
        try:
            signature.bind(**values)
            as_dict = False
        except TypeError:
            as_dict = True
            try:
                signature.bind(given)
            except TypeError as error:
                raise ModuleUnusable(
                    f"the example inputs {name_first(names)} are not those of the module: {error}",
                    hint=f"{takes}; name the inputs as its parameters, or let it take one dict",
                    where="example_inputs",
                ) from error
    else:
        several = given if isinstance(given, tuple) else (given,)
        try:
            values, as_dict = dict(signature.bind(*several).arguments), False
        except TypeError as error:
            raise ModuleUnusable(
                f"the example inputs are not those of the module: {error}", hint=takes, where="example_inputs"
            ) from error
    return {name: _require_tensor(name, value) for name, value in values.items()}, as_dict


def _require_tensor(name: str, value: object) -> Value:
    if isinstance(value, Tensor | KeyedJaggedTensor):
        return value
    raise ModuleUnusable(
        f"the example input {name} is {type(value).__name__}, and no tensor or KeyedJaggedTensor",
        hint="give a KeyedJaggedTensor, a tensor, or a dict of these; bind everything else in the module",
        where=name,
    )


def _take_apart(
    name: str, jagged: KeyedJaggedTensor, front: str
) -> tuple[JaggedArgument, list[ExampleInput]]:
    """Return how to make a KeyedJaggedTensor again, and the values, lengths and weights of each key."""
    if jagged.variable_stride_per_key():
        raise ModuleUnusable(
            f"{name} has another number of rows for each key",
            hint="give an example with one batch for all keys, as a server sends it",
            where=name,
        )
    keys = tuple(jagged.keys())
    inputs: list[ExampleInput] = []
    for key, each in jagged.to_dict().items():
        parts = {"values": each.values(), "lengths": each.lengths()}
        if (weights := each.weights_or_none()) is not None:
            parts["weights"] = weights
        for part, tensor in parts.items():
            inputs.append(
                ExampleInput(
                    name=f"{front}{key}.{part}",
                    tensor=tensor.detach().cpu(),
                    column=f"{front}{key}" if part == "values" else f"{front}{key}.{part}",
                    lengths=None if part == "lengths" else f"{front}{key}.lengths",
                    key=key,
                    is_lengths=part == "lengths",
                )
            )
    weighted = jagged.weights_or_none() is not None
    made_of = JaggedArgument(
        keys=keys,
        values=tuple(f"{front}{key}.values" for key in keys),
        lengths=tuple(f"{front}{key}.lengths" for key in keys),
        weights=tuple(f"{front}{key}.weights" for key in keys) if weighted else (),
    )
    return made_of, inputs


def _check_tensor(given: ExampleInput) -> None:
    dtype = str(given.tensor.dtype).removeprefix("torch.")
    if dtype not in ("float32", "int64", "int32"):
        raise ModuleUnusable(
            f"the example input {given.name} is {dtype}, and packages take {_SAVED}",
            hint="convert it, and let the module convert it back if it has to",
            where=given.name,
        )
    if given.tensor.dim() == 0:
        raise ModuleUnusable(
            f"the example input {given.name} is a single number, without an axis of rows",
            hint="give one value per row, or make it a buffer of the module",
            where=given.name,
        )


def _find_lengths(inputs: Mapping[str, ExampleInput]) -> dict[str, str]:
    """Return the plain tensors that others count, by their names: `x.values` or `x_ids` by `x.lengths`."""
    found: dict[str, str] = {}
    for counts in inputs.values():
        stem = _stem(counts.name)
        if stem is None or counts.key is not None or not _may_count(counts.tensor):
            continue
        total = int(counts.tensor.sum())
        for each in inputs.values():
            named = each.name == stem or each.name.startswith((f"{stem}.", f"{stem}_"))
            if named and each is not counts and each.key is None and each.tensor.shape[0] == total:
                found[each.name] = counts.name
    return found


def _stem(name: str) -> str | None:
    """Return what a name says that it is the lengths of; None if it says nothing of lengths."""
    ending = next((each for each in _LENGTHS if name.endswith((f".{each}", f"_{each}"))), None)
    return name[: -len(ending) - 1] if ending else None


def _may_count(tensor: Tensor) -> bool:
    return tensor.dim() == 1 and not tensor.is_floating_point() and bool((tensor >= 0).all())


def _require_named(lengths: Mapping[str, str], inputs: Mapping[str, ExampleInput]) -> dict[str, str]:
    """Return the lengths that the caller names, of the inputs of this example."""
    own = {name: counts for name, counts in lengths.items() if {name, counts} <= inputs.keys()}
    for name, counts in own.items():
        if not _may_count(inputs[counts].tensor):
            raise ModuleUnusable(
                f"{counts} cannot be the lengths of {name}: it holds no whole numbers of shape [batch]",
                hint="name an int64 or int32 input of shape [batch]",
                where="lengths",
            )
    return own


def _column_of(name: str, inputs: Mapping[str, ExampleInput]) -> str:
    """Return the column of a counted input: `x` for `x.values`, unless that is another input's name."""
    if inputs[name].key is not None:
        return inputs[name].column
    column = name.removesuffix(_VALUES)
    return name if column in inputs else column


def _count_rows(inputs: Mapping[str, ExampleInput]) -> int:
    """Return the number of rows: of lengths where there are any, else the size that most inputs have."""
    counting = [each.tensor.shape[0] for each in inputs.values() if each.is_lengths]
    sizes: Sequence[int] = counting or [each.tensor.shape[0] for each in inputs.values()]
    [(rows, _)] = Counter(sizes).most_common(1)
    if rows == 0:
        raise ModuleUnusable(
            "the example inputs have no rows",
            hint="give at least one row, better ten",
            where="example_inputs",
        )
    return rows


def _check_sizes(given: ExampleInput, inputs: Mapping[str, ExampleInput], rows: int) -> None:
    """Require that an input has a row per row, or as many elements as its lengths count."""
    size, expected, what = given.tensor.shape[0], rows, "rows"
    if given.lengths is not None:
        expected = int(inputs[given.lengths].tensor.sum())
        what = f"elements by {given.lengths}"
    if size != expected:
        raise ModuleUnusable(
            f"the example input {given.name} has {size} along its first axis, for {expected} {what}",
            hint="give all inputs for the same rows; for one with elements, name the input that counts them: "
            f"lengths={{{given.name!r}: ...}}",
            where=given.name,
        )
