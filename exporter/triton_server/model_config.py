"""Configurations of Triton's models, as the text of its message ModelConfig."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from exporter.errors import InvalidSpec
from exporter.manifest import TensorEntry
from exporter.spec import Device

_DATA_TYPES = {
    "bool": "TYPE_BOOL",
    "uint8": "TYPE_UINT8",
    "int8": "TYPE_INT8",
    "int16": "TYPE_INT16",
    "int32": "TYPE_INT32",
    "int64": "TYPE_INT64",
    "float16": "TYPE_FP16",
    "float32": "TYPE_FP32",
    "float64": "TYPE_FP64",
}
_KINDS = {Device.CPU: "KIND_CPU", Device.CUDA: "KIND_GPU"}
_HEAD = (
    "# For Triton Inference Server; written by Slipway, whose docs/triton.md says what the server needs.\n"
)


@dataclass(frozen=True, kw_only=True)
class Interface:
    """The tensors of a model, in the order of its package, each under its name in Triton."""

    inputs: Mapping[str, TensorEntry]
    outputs: Mapping[str, TensorEntry]


@dataclass(frozen=True, kw_only=True)
class WarmUpTensor:
    """One input of a warm-up request; `file` lies in the model's folder of warm-up data, None if empty."""

    data_type: str
    dims: tuple[int, ...]
    file: str | None


@dataclass(frozen=True, kw_only=True)
class WarmUp:
    """A request that Triton makes before it says that a model is ready."""

    name: str
    inputs: Mapping[str, WarmUpTensor]  # by name in Triton


@dataclass(frozen=True, kw_only=True)
class Step:
    """One model of an ensemble: its tensors by the ensemble's names for them."""

    model: str
    inputs: Mapping[str, str]  # name in the model -> name in the ensemble
    outputs: Mapping[str, str]


def render_package(model: str, interface: Interface, device: Device, warm_ups: Sequence[WarmUp]) -> bytes:
    """Return the configuration of a model that is one package.

    Its own sizes vary, the number of rows among them, so that Triton must not put requests together: its
    `max_batch_size` is 0.

    Raises:
        InvalidSpec: a tensor is of a dtype or a shape that Triton's backend does not take.
    """
    lines = [
        *_begin(model, 'backend: "pytorch"\nplatform: "torch_aoti"'),
        *_tensors(interface),
        f"instance_group [ {{ count: 1 kind: {_KINDS[device]} }} ]",
        *(line for warm_up in warm_ups for line in _warm_up(warm_up)),
    ]
    return _text(lines)


def render_ensemble(model: str, interface: Interface, steps: Sequence[Step]) -> bytes:
    """Return the configuration of a model that runs others one after the other; raises as the other does."""
    lines = [*_begin(model, 'platform: "ensemble"'), *_tensors(interface), "ensemble_scheduling {"]
    for step in steps:
        lines += [f'  step {{ model_name: "{step.model}" model_version: -1']
        lines += [f'    input_map {{ key: "{key}" value: "{value}" }}' for key, value in step.inputs.items()]
        lines += [
            f'    output_map {{ key: "{key}" value: "{value}" }}' for key, value in step.outputs.items()
        ]
        lines += ["  }"]
    return _text([*lines, "}"])


def require_tensors(tensors: Iterable[TensorEntry]) -> None:
    """Raise InvalidSpec if a tensor is of a dtype or a shape that Triton's backend does not take."""
    for tensor in tensors:
        data_type(tensor)
        _dims(tensor)


def data_type(tensor: TensorEntry) -> str:
    """Return Triton's name of a tensor's dtype.

    Raises:
        InvalidSpec: Triton's backend has none for it.
    """
    if tensor.dtype not in _DATA_TYPES:
        raise _refuse(tensor, f"is {tensor.dtype}", f"of {', '.join(_DATA_TYPES)}")
    return _DATA_TYPES[tensor.dtype]


def _begin(model: str, what: str) -> tuple[str, ...]:
    return (f'name: "{model}"', what, "max_batch_size: 0")


def _tensors(interface: Interface) -> Iterator[str]:
    for field, tensors in (("input", interface.inputs), ("output", interface.outputs)):
        for name, tensor in tensors.items():
            yield f'{field} {{ name: "{name}" data_type: {data_type(tensor)} dims: {_dims(tensor)} }}'


def _dims(tensor: TensorEntry) -> str:
    """Return a shape in which every size that may vary is -1."""
    if not tensor.shape:
        raise _refuse(tensor, "is a single number without an axis", "with at least one axis")
    if 0 in tensor.shape:
        raise _refuse(tensor, f"has shape {list(tensor.shape)}", "whose axes are never of size 0")
    return _list(size if isinstance(size, int) else -1 for size in tensor.shape)


def _list(sizes: Iterable[int]) -> str:
    return f"[ {', '.join(str(size) for size in sizes)} ]"


def _warm_up(warm_up: WarmUp) -> Iterator[str]:
    yield f'model_warmup {{ name: "{warm_up.name}" batch_size: 1'  # of 0 Triton makes no request
    for name, tensor in warm_up.inputs.items():
        data = f'input_data_file: "{tensor.file}"' if tensor.file else "zero_data: true"
        value = f"{{ data_type: {tensor.data_type} dims: {_list(tensor.dims)} {data} }}"
        yield f'  inputs {{ key: "{name}" value {value} }}'
    yield "}"


def _refuse(tensor: TensorEntry, what: str, takes: str) -> InvalidSpec:
    return InvalidSpec(
        f"`layout: triton`: {tensor.name} {what}; Triton's AOTInductor backend takes tensors {takes}",
        hint="leave the layout out, or change the model",
        where="layout",
    )


def _text(lines: Sequence[str]) -> bytes:
    return (_HEAD + "\n".join(lines) + "\n").encode()
