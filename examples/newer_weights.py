"""Put the weights of a newer package into a loaded one, in a server in Python."""

import json
import math
import re
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

import torch
from torch import Tensor

_ROW = re.compile(r"^\s*constants_info_\[(\d+)\]\.(\w+) = (.*);$", re.MULTILINE)


class LoadedPackage(Protocol):
    """The object that torch._inductor.aoti_load_package returns."""

    def load_constants(
        self, constants_map: dict[str, Tensor], *, check_full_update: bool, user_managed: bool = False
    ) -> None: ...


def take_weights(package: LoadedPackage, *, mine: Mapping[str, Tensor], newer: Mapping[str, Tensor]) -> None:
    """Put the newer weights into a loaded package; raise ValueError if names, shapes or dtypes differ."""
    names = mine.keys() | newer.keys()
    if differing := sorted(name for name in names if _shape(mine, name) != _shape(newer, name)):
        raise ValueError(f"the packages differ in {', '.join(differing)}: load the newer one as a whole")
    package.load_constants({name: tensor.clone() for name, tensor in newer.items()}, check_full_update=True)


def weights_of(path: Path) -> dict[str, Tensor]:
    """Read the weights from a package's file, by their names in the model."""
    with zipfile.ZipFile(path) as package:
        names = package.namelist()
        table = package.read(next(name for name in names if name.endswith(".wrapper.cpp"))).decode()
        blob = bytearray(package.read(next(name for name in names if name.endswith("_weights.blob"))))
    rows: dict[int, dict[str, str]] = {}
    for number, field, value in _ROW.findall(table):
        rows.setdefault(int(number), {})[field] = value
    weights, offset = {}, 0
    for _, row in sorted(rows.items()):
        if row["from_folded"] == "true":  # computed from others when the package is loaded
            continue
        dtype = getattr(torch, row["dtype"].rpartition("torch_dtype_")[2])
        shape = [int(size) for size in re.findall(r"\d+", row["shape"])]
        weights[str(json.loads(row["original_fqn"]))] = torch.frombuffer(
            blob, dtype=dtype, count=math.prod(shape), offset=offset
        ).reshape(shape)
        offset += int(row["data_size"])
    return weights


def _shape(weights: Mapping[str, Tensor], name: str) -> tuple[torch.Size, torch.dtype] | None:
    tensor = weights.get(name)
    return None if tensor is None else (tensor.shape, tensor.dtype)
