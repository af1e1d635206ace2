"""Keys of compiled code: of a request, known before anything is traced, and of a traced graph.

A key covers everything the code depends on. Parameters and persistent buffers are in neither key, as the
compiler never sees their values. Every other constant is, by value.
"""

import hashlib
import json
import sys
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache
from pathlib import Path

import torch
from pydantic import BaseModel
from torch import Tensor, nn
from torch.export import ExportedProgram
from torch.fx import GraphModule, Node

import exporter
from exporter.aoti.architecture import architecture
from exporter.aoti.compile import versions
from exporter.aoti.torch_private import compiler_settings
from exporter.config.declared_model import DeclaredConfig
from exporter.families.own_module import own_sources
from exporter.spec import Device, Pass, Target
from exporter.towers.tower import Tower
from exporter.trace.op_libraries import all_graphs, find_compiled_in_modules

# Folders of the code that a trace runs or that decides how it is compiled.
_OUR_CODE = ("aoti", "config", "dims", "lowering", "models", "torcheasyrec", "towers", "trace")
_SOURCES = frozenset({".py", ".h"})
_KERNELS = Path(exporter.__path__[0]) / "aoti" / "kernels"
_VERSIONED = frozenset({"torch", "torchrec", "fbgemm_gpu", "exporter"})  # the key contains their versions
_IGNORED_FIELDS = frozenset(
    {
        "text", "train_input_path", "train_rows_are_encoded", "averaged_weights", "reason",
        "default_precision", "default_kernel",  # a tower's options hold what they led to
    }
)  # fmt: skip


def prepare_keys() -> None:
    """Find out what all keys made in this process and its forks have in common: code, compiler, processor."""
    _digest_own_code()
    _describe_environment(torch.device("cpu"), "cpu")


def request_key(
    parts: Sequence[Tower], passes: Sequence[Pass], device: torch.device, target: Target = "cpu"
) -> str:
    """Return a request's key: a digest of all that affects the parts' code and is known before a trace."""
    facts = {
        "environment": _describe_environment(device, target),
        "passes": canonical(passes),
        "parts": [
            {
                "config": canonical(part.config),
                "plan": canonical(part.plan),
                "constants": {name: _digest(value) for name, value in _constants_of(part.module)},
                "sources": _sources(part),
            }
            for part in parts
        ],
    }
    return _sha256(json.dumps(facts, sort_keys=True))


def graph_fingerprint(program: ExportedProgram, device: torch.device, target: Target = "cpu") -> str:
    """Return a digest of a traced graph: operators, sizes, dtypes, strides, constants, and the compiler."""
    digest = hashlib.sha256(json.dumps(_describe_environment(device, target), sort_keys=True).encode())
    for line in _describe_program(program):
        digest.update(f"{line}\n".encode())
    return digest.hexdigest()


def canonical(value: object) -> object:
    """Return the value as JSON data, the same in every process, without the fields in _IGNORED_FIELDS."""
    if value is None or isinstance(value, str | int | float):  # also enums with values of these types
        return value
    if isinstance(value, Mapping):
        return {str(name): canonical(each) for name, each in value.items() if name not in _IGNORED_FIELDS}
    if isinstance(value, Set):
        return sorted((canonical(each) for each in value), key=json.dumps)
    if isinstance(value, Sequence):
        return [canonical(each) for each in value]
    return canonical({"type": type(value).__name__, **_fields(value)})


def _fields(value: object) -> dict[str, object]:
    if isinstance(value, BaseModel):
        return dict(value)
    if is_dataclass(value):
        return {field.name: getattr(value, field.name) for field in fields(value)}
    if isinstance(value, Enum):
        return {"value": value.value}
    raise TypeError(f"{type(value).__name__} in a config: add here which of its fields affect the code")


def _describe_environment(device: torch.device, target: Target) -> dict[str, object]:
    return {
        "versions": versions().model_dump(),
        "architecture": architecture(Device(device.type), target),
        "target": target,
        "compiler": dict(compiler_settings()),
    }


def _constants_of(module: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Yield the buffers that are not in a checkpoint."""
    saved = module.state_dict().keys()
    return ((name, buffer) for name, buffer in module.named_buffers() if name not in saved)


def _sources(part: Tower) -> dict[str, str]:
    """Digest the code of the module's classes: our folders, and whole packages of other authors.

    Of a family that no package offers, all files count that were loaded and belong to no package.
    """
    packages = {type(each).__module__.partition(".")[0] for each in part.module.modules()} - _VERSIONED
    sources = _digest_own_code() | {name: _digest_package(name) for name in sorted(packages)}
    model = part.config.pipeline.model
    if isinstance(model, DeclaredConfig) and model.is_own:
        sources |= {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in own_sources()}
    return sources


def _digest_own_code() -> dict[str, str]:
    return {name: _digest_folder(Path(exporter.__path__[0]) / name) for name in _OUR_CODE}


def _digest_package(name: str) -> str:
    file = getattr(sys.modules.get(name), "__file__", None)
    if file is None:
        return "without a file"
    path = Path(file)
    return _digest_folder(path.parent) if path.name == "__init__.py" else _sha256(path.read_text())


def _digest_beside(module: str) -> str:
    """Digest all modules in the folder of `module`: a kernel may be in another one than its operator."""
    file = getattr(sys.modules.get(module), "__file__", None)
    return "without a file" if file is None else _digest_folder(Path(file).parent)


@cache
def _digest_folder(folder: Path) -> str:
    sources = (path for path in sorted(folder.rglob("*")) if path.suffix in _SOURCES)
    texts = ((str(path.relative_to(folder)), path.read_bytes()) for path in sources)
    return _sha256("\n".join(f"{name} {hashlib.sha256(text).hexdigest()}" for name, text in texts))


def _describe_program(program: ExportedProgram) -> Iterator[str]:
    for name, module in program.graph_module.named_modules():
        if isinstance(module, GraphModule):
            yield f"graph {name}"
            yield from (_describe_node(node) for node in module.graph.nodes)
    for module in find_compiled_in_modules(all_graphs([program])):  # their kernels become part of the code
        yield f"compiled in {module} {_digest_beside(module)}"
    yield f"kernels {_digest_folder(_KERNELS)}"  # for a CPU, where products are changed in any graph
    yield str(program.graph_signature)
    yield str(program.call_spec)
    yield str(sorted((str(symbol), str(bounds)) for symbol, bounds in program.range_constraints.items()))
    for name, value in sorted(program.constants.items()):
        yield f"constant {name} {_digest(value) if isinstance(value, Tensor) else value}"
    assert program.example_inputs is not None
    (inputs,), _ = program.example_inputs
    for name, value in inputs.items():  # the compiler may tune for these sizes
        yield f"example {name} {_describe_value(value)}"


def _describe_node(node: Node) -> str:
    target = node.target if isinstance(node.target, str) else _name_of(node.target)
    return f"{node.op} {node.name} {target} {node.args} {node.kwargs} {_describe_value(node.meta.get('val'))}"


def _name_of(function: object) -> str:
    """Return a stable name: str() of an operator is its name, but str() of a function has its address."""
    if hasattr(function, "namespace"):
        return str(function)
    return f"{getattr(function, '__module__', '')}.{getattr(function, '__qualname__', None) or function}"


def _describe_value(value: object) -> str:
    """Describe a traced value; of a tensor its dtype, shape, strides and device, but not its numbers."""
    if isinstance(value, Tensor):
        return f"{value.dtype} {list(value.shape)} {list(value.stride())} {value.device}"
    if isinstance(value, list | tuple):
        return str([_describe_value(each) for each in value])
    return str(value)


def _digest(value: Tensor) -> str:
    data = value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy()
    return f"{_describe_value(value)} {hashlib.sha256(data.data).hexdigest()}"


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
