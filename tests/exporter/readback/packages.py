"""Packages of recorded towers, as they lie on disk before they are sent: real weights, stand-ins for code.

The stand-in has the table of constants that compiled code has, for every tensor of the module; reading a
package back never runs it.
"""

import random
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from exporter.aoti.assemble import BLOB_SUFFIX
from exporter.aoti.code import CompiledCode
from exporter.checkpoint.stored_zip import data_start
from exporter.manifest import ReadBack
from exporter.packages.parts import plan_packages
from exporter.pipeline.open_tower import OpenedTower, open_tower
from exporter.readback.packages import WrittenPackage, read_back
from exporter.readback.tower_weights import TowerWeights
from exporter.spec import ExportSpec
from exporter.stages import StageClock
from exporter.towers.plan import plan_towers
from tests.exporter.shards.conftest import spec_of
from tests.exporter.stage_events import ignore_stages


@dataclass(frozen=True, kw_only=True, eq=False)
class Written:
    """The packages of one tower, and the checkpoint that they are held against."""

    packages: tuple[WrittenPackage, ...]
    origin: TowerWeights

    def read_back(self) -> ReadBack:
        return read_back(self.packages, self.origin)

    def blobs(self) -> Iterator[tuple[WrittenPackage, int]]:
        """Yield the packages with weights, and the byte of their file at which the weights begin."""
        for package in self.packages:
            with zipfile.ZipFile(package.file.path) as archive, package.file.path.open("rb") as file:
                for entry in archive.infolist():
                    if entry.filename.endswith(BLOB_SUFFIX):
                        yield package, data_start(entry, file)


def packaged_spec(model: str, folder: Path, **changes: object) -> ExportSpec:
    return spec_of(model, folder, **{"mode": "unified", "tables": "packaged", **changes})


def open_recorded(spec: ExportSpec, folder: Path, tower: int = 0) -> OpenedTower:
    assert spec.config is not None
    planned = plan_towers(spec, spec.config)[tower]
    return open_tower(planned, spec, spec.config, folder, StageClock(planned.name, ignore_stages))


def write_packages(opened: OpenedTower, spec: ExportSpec, folder: Path) -> Written:
    """Write a tower's packages, with stand-ins for compiled code."""
    written = []
    for part in plan_packages(opened.tower, spec).parts:
        weights = part.tower.module.state_dict()
        code = CompiledCode(files=code_files(weights), values={})
        written.append(
            WrittenPackage(
                title=opened.tower.title,
                file=code.assemble(weights, folder / part.path),
                code=code,
                module=part.tower.module,
                weights=weights,
            )
        )
    origin = TowerWeights(filled=opened.filled, tables=opened.lowered.tables)
    return Written(packages=tuple(written), origin=origin)


def code_files(weights: Mapping[str, Tensor]) -> dict[str, bytes]:
    """Return files as of compiled code that reads these weights."""
    lines = []
    for number, (name, tensor) in enumerate(weights.items()):
        numbers = (
            ", ".join(f"{each}L" for each in each_axis) for each_axis in (tensor.shape, tensor.stride())
        )
        shape, stride = numbers
        size = -(-tensor.nbytes // 64) * 64
        dtype = str(tensor.dtype).removeprefix("torch.")
        fields = {
            "dtype": f"cached_torch_dtype_{dtype}",
            "offset": "0",
            "data_size": str(size),
            "from_folded": "false",
            "shape": f"{{{shape}}}",
            "stride": f"{{{stride}}}",
            "original_fqn": f'"{name}"',
        }
        lines += [f"    constants_info_[{number}].{field} = {value};" for field, value in fields.items()]
    files = {"a.wrapper.cpp": "\n".join(lines).encode(), "a.wrapper.so": random.Random(0).randbytes(3000)}
    return {**files, f"a.{BLOB_SUFFIX}": b""} if weights else files


@contextmanager
def flipped(path: Path, at: int, bit: int) -> Iterator[None]:
    """Flip one bit of a file inside the context."""
    data = path.read_bytes()
    with path.open("r+b") as file:
        file.seek(at)
        file.write(bytes([data[at] ^ 1 << bit]))
    yield
    with path.open("r+b") as file:
        file.seek(at)
        file.write(data[at : at + 1])


def places_in(package: WrittenPackage, start: int, draw: random.Random) -> Iterator[tuple[str, int]]:
    """Yield, for every constant of a package, its name and a random byte of the file that belongs to it."""
    at = start
    for constant in package.code.table:
        if constant.size:
            yield constant.fqn, at + draw.randrange(constant.size)
        at += constant.size


def with_weights(written: Written, weights: Mapping[str, Tensor]) -> Written:
    """Return the only package of a tower, written anew with other weights for some names."""
    [package] = written.packages
    own = {**package.weights, **weights}
    file = package.code.assemble(own, package.file.path)
    return replace(written, packages=(replace(package, file=file, weights=own),))


def swapped_rows(table: Tensor, one: int, other: int) -> Tensor:
    """Return a table with two rows in each other's place."""
    order = torch.arange(len(table))
    order[[one, other]] = order[[other, one]]
    return table.detach()[order]
