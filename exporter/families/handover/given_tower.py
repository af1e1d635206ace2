"""A module handed over, behind the inputs of a package: from a dict of plain tensors to its own arguments."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from exporter.families.handover.errors import ModuleUnusable
from exporter.families.handover.torchrec_classes import KeyedJaggedTensor, KeyedTensor

OUTPUT = "output"  # the name of an output that the module does not name


@dataclass(frozen=True, kw_only=True)
class JaggedArgument:
    """A KeyedJaggedTensor: the names of the inputs that it is made of, in the order of its keys."""

    keys: tuple[str, ...]
    values: tuple[str, ...]
    lengths: tuple[str, ...]
    weights: tuple[str, ...] = ()

    def make(self, inputs: Mapping[str, Tensor]) -> KeyedJaggedTensor:
        weights = torch.cat([inputs[name] for name in self.weights]) if self.weights else None
        return KeyedJaggedTensor(
            keys=list(self.keys),
            values=torch.cat([inputs[name] for name in self.values]),
            lengths=torch.cat([inputs[name] for name in self.lengths]),
            weights=weights,
        )


@dataclass(frozen=True, kw_only=True)
class Call:
    """A call of the module's forward: by keywords, or with one dict; plain tensors are named by an input."""

    arguments: Mapping[str, str | JaggedArgument]
    as_dict: bool

    def __str__(self) -> str:
        names = ", ".join(self.arguments)
        return f"forward({{{names}}}), one dict" if self.as_dict else f"forward({names})"


class GivenTower(nn.Module):
    """Calls a module, or a part of it, with arguments made of the tower's inputs."""

    def __init__(self, module: nn.Module, path: str, call: Call) -> None:
        """Take the module that is called, and its name in `model`: the empty one if it is all of that.

        The state dict of `model` has the checkpoint's names.
        """
        super().__init__()
        self.model = nest(module, path)
        self._path = path
        self._call = call

    def forward(self, inputs: dict[str, Tensor]) -> dict[str, Tensor]:
        arguments: dict[str, object] = {}
        for name, made_of in self._call.arguments.items():
            arguments[name] = inputs[made_of] if isinstance(made_of, str) else made_of.make(inputs)
        module = self.model.get_submodule(self._path)
        return name_outputs(module(arguments) if self._call.as_dict else module(**arguments))


def nest(module: nn.Module, path: str) -> nn.Module:
    """Return a module that has this one as its submodule of that name, and no other."""
    for name in reversed(path.split(".") if path else []):
        parent = nn.Module()
        parent.add_module(name, module)
        module = parent
    return module


def name_outputs(outputs: object) -> dict[str, Tensor]:
    """Return what a module returned as a dict from names to tensors.

    Raises:
        ModuleUnusable: it is neither a tensor nor a dict (or named tuple, or KeyedTensor) of tensors.
    """
    if isinstance(outputs, Tensor):
        return {OUTPUT: outputs}
    if isinstance(outputs, KeyedTensor):
        by_name: dict[str, Tensor] = outputs.to_dict()
        return by_name
    if isinstance(outputs, tuple) and hasattr(outputs, "_asdict"):
        outputs = outputs._asdict()
    if isinstance(outputs, Mapping):
        wrong = [
            name for name, each in outputs.items() if not (isinstance(name, str) and isinstance(each, Tensor))
        ]
        if outputs and not wrong:
            return dict(outputs)
        what = f"a dict with {wrong[0]!r}: {type(outputs[wrong[0]]).__name__}" if wrong else "an empty dict"
    else:
        what = f"{type(outputs).__name__}"
    raise ModuleUnusable(
        f"the module returns {what}, and no tensor or dict of tensors",
        hint="return a tensor, or a dict from names to tensors, one number or vector per row",
        where="module",
    )
