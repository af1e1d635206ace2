"""Read and write .safetensors files: a JSON header and raw bytes, with no code in them."""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from exporter.checkpoint.mapped_tensor import MappedFiles, map_part, map_tensor
from exporter.checkpoint.tensors import (
    HashFiles,
    Piece,
    TensorMeta,
    digest_files,
    hash_files,
    raw_of,
    shape_raw,
)
from exporter.errors import CheckpointUnreadable
from slipway.loading.dtypes import SAFETENSORS_DTYPES

_CODES = {dtype: code for code, dtype in SAFETENSORS_DTYPES.items()}
MOST_TENSORS = 1 << 17  # of a file
_ALIGNED = 64  # bytes; values begin at a multiple of it


class SafetensorsCheckpoint:
    """One or more .safetensors files of a folder, without two tensors of the same name."""

    def __init__(self, files: Sequence[Path]) -> None:
        self._files = tuple(files)
        self._tensors: dict[str, tuple[Path, TensorMeta]] = {}
        self._starts: dict[Path, dict[str, int]] = {}
        self._mapped = MappedFiles()
        for path in self._files:
            for name, meta in _header(path).items():
                if name in self._tensors:
                    raise CheckpointUnreadable(
                        f"tensor {name} is in both {self._tensors[name][0].name} and {path}", where=name
                    )
                self._tensors[name] = path, meta

    def tensors(self) -> Mapping[str, TensorMeta]:
        return {name: meta for name, (_, meta) in self._tensors.items()}

    def read(self, name: str) -> Tensor:
        return map_tensor(*self._place(name))

    def rows(self, name: str, first: int, end: int) -> Tensor:
        path, start, meta = self._place(name)
        mapped = map_part(path, start, meta.nbytes)  # dropped once the rows are copied
        return shape_raw(mapped, meta)[first:end].clone().view(meta.dtype)

    def pieces(self, name: str) -> tuple[Piece, ...]:
        path, start, meta = self._place(name)
        raw = shape_raw(self._mapped.part(path, start, meta.nbytes), meta)
        return (Piece(offset=(0,) * len(meta.shape), raw=raw, dtype=meta.dtype),)

    def digest(self, hashed: HashFiles = hash_files) -> str:
        return digest_files(self._files[0].parent, [path.name for path in self._files], hashed)

    def _place(self, name: str) -> tuple[Path, int, TensorMeta]:
        """Return the file of a tensor, the byte at which its values begin, and its shape and dtype."""
        path, meta = self._tensors[name]
        if path not in self._starts:
            self._starts[path] = _starts(path)
        return path, self._starts[path][name], meta


def _header(path: Path) -> dict[str, TensorMeta]:
    with _open_checked(path) as file:
        names: list[str] = file.keys()  # type: ignore[no-untyped-call]  # native code, no types
        if len(names) > MOST_TENSORS:
            raise CheckpointUnreadable(
                f"{path} holds {len(names):,} tensors, more than the {MOST_TENSORS:,} that are read",
                hint="save the weights alone, without optimizers",
                where=path.name,
            )
        slices = {name: file.get_slice(name) for name in names}  # type: ignore[no-untyped-call]  # as above
        return {
            name: TensorMeta(shape=tuple(view.get_shape()), dtype=_dtype(view.get_dtype(), name, path))
            for name, view in slices.items()
        }


def _starts(path: Path) -> dict[str, int]:
    """Return the byte at which each tensor's values begin, in a file that `safe_open` has accepted."""
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(length))
    return {
        name: 8 + length + entry["data_offsets"][0]
        for name, entry in header.items()
        if name != "__metadata__"
    }


def _dtype(code: str, name: str, path: Path) -> torch.dtype:
    if code not in SAFETENSORS_DTYPES:
        raise CheckpointUnreadable(
            f"{path}: tensor {name} is of type {code}, which is not supported", where=name
        )
    return SAFETENSORS_DTYPES[code]


@contextmanager
def _open_checked(path: Path) -> Iterator[safe_open]:
    try:
        # With framework="torch" it maps the file for writing, which fails for files larger than memory.
        with safe_open(path, framework="numpy") as file:
            yield file
    except (SafetensorError, OSError) as error:
        raise CheckpointUnreadable(f"{path} is no .safetensors file: {error}", where=path.name) from error


def write_safetensors(path: Path, tensors: Mapping[str, TensorMeta], values: Iterable[Tensor]) -> str:
    """Write tensors of these names, in this order, and return the file's sha256.

    `values` yields their values, one tensor after the other, in pieces of any size; one piece is held at a
    time.
    """
    entries: dict[str, dict[str, object]] = {}
    end = 0
    for name, meta in tensors.items():
        begin, end = end, end + meta.nbytes
        shape = list(meta.shape)
        entries[name] = {"dtype": _CODES[meta.dtype], "shape": shape, "data_offsets": [begin, end]}
    header = json.dumps(entries).encode()
    header += b" " * (-(8 + len(header)) % _ALIGNED)
    digest, written = hashlib.sha256(), 0
    with path.open("wb") as file:
        for data in (len(header).to_bytes(8, "little"), header):
            digest.update(data)
            file.write(data)
        for piece in values:
            raw = raw_of(piece.contiguous()).reshape(-1).numpy().data
            digest.update(raw)
            written += file.write(raw)
    assert written == end, "the pieces are those of the tensors"
    return digest.hexdigest()
