"""The files of a tower's Triton model repository, except for its packages."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from exporter.manifest import TensorEntry
from exporter.spec import Device
from exporter.triton_server.model_config import (
    Interface,
    Step,
    WarmUp,
    WarmUpTensor,
    data_type,
    render_ensemble,
    render_package,
)
from exporter.triton_server.names import (
    CONFIG_NAME,
    REPOSITORY,
    VERSION,
    WARM_UP,
    input_names,
    output_names,
)

# Triton asks for a folder of a version, also of an ensemble, and object stores keep no empty folders.
_NOTHING = f"{VERSION}/ensemble.txt"


@dataclass(frozen=True, kw_only=True)
class RawTensor:
    """A tensor as Triton reads it from a file: its numbers in row-major order, little-endian."""

    shape: tuple[int, ...]
    data: bytes


@dataclass(frozen=True, kw_only=True)
class PackageModel:
    """One package as a model of the repository, with the sample requests that warm it up."""

    name: str
    inputs: tuple[TensorEntry, ...]  # in the order in which the package takes them
    outputs: tuple[TensorEntry, ...]  # in the order in which it returns them
    requests: Mapping[str, Mapping[str, RawTensor]]  # name -> input -> numbers

    @property
    def interface(self) -> Interface:
        names = input_names([each.name for each in self.inputs])
        returned = output_names([each.name for each in self.outputs])
        return Interface(
            inputs={names[each.name]: each for each in self.inputs},
            outputs={returned[each.name]: each for each in self.outputs},
        )


def render_repository(model: str, packages: Sequence[PackageModel], device: Device) -> dict[str, bytes]:
    """Return the files of a tower's repository by their paths below the tower's folder.

    Clients call `model`: the one package, or an ensemble of two that run one after the other.

    Raises:
        InvalidSpec: a tensor is of a dtype or a shape that Triton's backend does not take.
    """
    files: dict[str, bytes] = {}
    for package in packages:
        files |= _render_package(package, device)
    if len(packages) > 1:
        first, last = packages[0].interface, packages[-1].interface
        whole = Interface(inputs=first.inputs, outputs=last.outputs)
        files[f"{REPOSITORY}/{model}/{CONFIG_NAME}"] = render_ensemble(model, whole, _connect(packages))
        files[f"{REPOSITORY}/{model}/{_NOTHING}"] = b"This model runs others; it has no file of its own.\n"
    return files


def _render_package(package: PackageModel, device: Device) -> dict[str, bytes]:
    """Return the configuration, and the data of warm-up requests, of which equal inputs share a file."""
    folder = f"{REPOSITORY}/{package.name}"
    inputs = package.interface.inputs
    warm_ups: list[WarmUp] = []
    files: dict[str, bytes] = {}
    for request, tensors in package.requests.items():
        taken: dict[str, WarmUpTensor] = {}
        for name, entry in inputs.items():
            raw = tensors[entry.name]
            file = f"{hashlib.sha256(raw.data).hexdigest()[:16]}.bin" if raw.data else None
            taken[name] = WarmUpTensor(data_type=data_type(entry), dims=raw.shape, file=file)
            if file:
                files[f"{folder}/{WARM_UP}/{file}"] = raw.data
        warm_ups.append(WarmUp(name=request, inputs=taken))
    config = render_package(package.name, package.interface, device, warm_ups)
    return {f"{folder}/{CONFIG_NAME}": config, **files}


def _connect(packages: Sequence[PackageModel]) -> list[Step]:
    """Connect the two packages by the names of their tensors: the last one returns the ensemble's outputs.

    Tensors between two packages have names in the ensemble that neither its inputs nor its outputs have.
    """
    first, last = packages
    handed = {entry.name: f"{last.name}:{name}" for name, entry in last.interface.inputs.items()}
    returned = first.interface.outputs.items()
    return [
        Step(
            model=first.name,
            inputs={name: name for name in first.interface.inputs},
            outputs={name: handed[entry.name] for name, entry in returned if entry.name in handed},
        ),
        Step(
            model=last.name,
            inputs={name: handed[entry.name] for name, entry in last.interface.inputs.items()},
            outputs={name: name for name in last.interface.outputs},
        ),
    ]
