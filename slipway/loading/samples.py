"""Sample requests with their answers, from the safetensors file that an artifact has for them."""

from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from slipway.loading.dtypes import SAFETENSORS_DTYPES
from slipway.loading.errors import ArtifactInvalid
from slipway.loading.layout.digests import require_file
from slipway.loading.layout.json_fields import Fields, read_file
from slipway.loading.layout.manifest import FileRef

_METADATA = "__metadata__"


def read_samples(folder: Path, ref: FileRef) -> Mapping[str, Tensor]:
    """Read all tensors of a file of samples, by their names in it.

    Raises:
        ArtifactDamaged: the file is missing, or not the published one.
        ArtifactInvalid: it is no file of tensors.
    """
    path = folder / ref.path
    require_file(path, ref.size, ref.sha256)
    data = read_file(path)
    begin = 8 + int.from_bytes(data[:8], "little")
    header = Fields.parse(data[8:begin], str(path))
    try:
        return {name: _read(header.child(name), data[begin:]) for name in header.names() if name != _METADATA}
    except (KeyError, RuntimeError, ValueError) as error:
        raise ArtifactInvalid(f"{path} holds no tensors: {error}", where=str(path)) from error


def _read(entry: Fields, data: bytes) -> Tensor:
    dtype, shape = SAFETENSORS_DTYPES[entry.text("dtype")], entry.numbers("shape")
    begin, end = entry.numbers("data_offsets")
    if begin == end:
        return torch.empty(shape, dtype=dtype)
    return torch.frombuffer(bytearray(data[begin:end]), dtype=dtype).reshape(shape)
