"""Read state dicts that torch.save wrote (.pt, .pth) without running what is pickled in them.

Such a file is a zip: `data.pkl` names the tensors, and every storage is an uncompressed entry of its own.
Only the functions that torch pickles dense tensors by are admitted, as inert records; values are mapped in
place.
"""

import io
import math
import pickle
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import torch
from torch import Tensor

from exporter.checkpoint.mapped_tensor import MappedFiles, map_part, map_tensor, own_storage
from exporter.checkpoint.pickle_bombs import refuse_bombs
from exporter.checkpoint.stored_zip import data_start, directory_bytes
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
from exporter.redaction import name_first

SUFFIXES = (".pt", ".pth")
MOST_TENSORS = 1 << 17  # of a file
_MOST_AXES = 8
_SIZE = "Size"
_WORD_BYTES = 16
_MOST = 1 << 63  # of a size, a stride or an offset
_MAX_PICKLE_BYTES = 256 << 20  # a tensor takes some 200
_MAX_DIRECTORY_BYTES = 32 << 20  # of the zip; an entry takes some 70
_FEW = 3  # entries in a message

_STORAGES = {
    "BoolStorage": torch.bool,
    "ByteStorage": torch.uint8,
    "CharStorage": torch.int8,
    "ShortStorage": torch.int16,
    "IntStorage": torch.int32,
    "LongStorage": torch.int64,
    "HalfStorage": torch.float16,
    "BFloat16Storage": torch.bfloat16,
    "FloatStorage": torch.float32,
    "DoubleStorage": torch.float64,
}
_TENSOR, _PARAMETER, _DICT = "_rebuild_tensor_v2", "_rebuild_parameter", "OrderedDict"
_RECORDS = {
    ("torch._utils", _TENSOR),
    ("torch._utils", _PARAMETER),
    *(("torch", name) for name in _STORAGES),
    ("torch", _SIZE),
}
_SAVE_WEIGHTS = "save the weights alone, torch.save(model.state_dict(), 'weights.pt'), or as .safetensors"
_SAVE_AGAIN = (
    "save it again with torch 1.6 or newer, torch.save(state_dict, 'weights.pt'), or as .safetensors"
)


class StateDictCheckpoint:
    """One file of torch.save that holds a dict from names to dense tensors, and nothing else."""

    def __init__(self, path: Path) -> None:
        """Read the names of the tensors and where they lie.

        Raises:
            CheckpointUnreadable: the file is no such dict, is damaged, or asks for anything but tensors.
        """
        self._path = path
        self._tensors = read_places(path)
        self._mapped = MappedFiles()

    def tensors(self) -> Mapping[str, TensorMeta]:
        return {name: place.meta for name, place in self._tensors.items()}

    def read(self, name: str) -> Tensor:
        place = self._tensors[name]
        if place.is_contiguous:
            return map_tensor(self._path, place.first_byte, place.meta)
        storage = TensorMeta(shape=(place.elements,), dtype=place.meta.dtype)
        whole = map_tensor(self._path, place.start, storage)
        return own_storage(whole.as_strided(place.meta.shape, place.stride, place.offset))

    def rows(self, name: str, first: int, end: int) -> Tensor:
        place = self._tensors[name]
        if not place.is_contiguous:
            return self.read(name)[first:end].clone()
        mapped = map_part(self._path, place.first_byte, place.meta.nbytes)  # dropped once rows are copied
        return shape_raw(mapped, place.meta)[first:end].clone().view(place.meta.dtype)

    def pieces(self, name: str) -> tuple[Piece, ...]:
        place = self._tensors[name]
        if place.is_contiguous:
            mapped = self._mapped.part(self._path, place.first_byte, place.meta.nbytes)
            raw = shape_raw(mapped, place.meta)
        else:
            raw = raw_of(self.read(name))
        return (Piece(offset=(0,) * len(place.meta.shape), raw=raw, dtype=place.meta.dtype),)

    def digest(self, hashed: HashFiles = hash_files) -> str:
        return digest_files(self._path.parent, [self._path.name], hashed)


@dataclass(frozen=True, kw_only=True)
class Place:
    """A tensor's values in the file: its storage, and its layout there in elements."""

    meta: TensorMeta
    start: int  # byte of the file at which the storage begins
    elements: int  # of the storage
    stride: tuple[int, ...]
    offset: int

    @property
    def first_byte(self) -> int:
        return self.start + self.offset * self.meta.dtype.itemsize

    @property
    def is_contiguous(self) -> bool:
        step = 1
        for size, stride in zip(reversed(self.meta.shape), reversed(self.stride), strict=True):
            if size != 1 and stride != step:
                return not math.prod(self.meta.shape)
            step *= size
        return True


def read_places(path: Path) -> dict[str, Place]:
    """Return the places of all tensors of a file of torch.save, by name.

    Raises:
        CheckpointUnreadable: the file is no dict of dense tensors, is damaged, or asks for anything else.
    """
    try:
        with path.open("rb") as file:
            return _read_places(path, file)
    except CheckpointUnreadable:
        raise
    except zipfile.BadZipFile as error:
        raise CheckpointUnreadable(
            f"{path} is no state dict as torch.save writes it since torch 1.6: {error}",
            hint=_SAVE_AGAIN,
            where=path.name,
        ) from error
    except OSError as error:
        raise CheckpointUnreadable(f"{path} could not be read: {error.strerror}", where=path.name) from error
    except Exception as error:  # bytes from a stranger may raise any error
        raise CheckpointUnreadable(
            f"{path} holds no state dict: {type(error).__name__}: {str(error)[:300]}",
            hint=_SAVE_WEIGHTS,
            where=path.name,
        ) from error


def _read_places(path: Path, file: BinaryIO) -> dict[str, Place]:
    if directory_bytes(file) > _MAX_DIRECTORY_BYTES:
        raise ValueError("its directory of entries is too large")
    with zipfile.ZipFile(file) as archive:
        entries = {entry.filename: entry for entry in archive.infolist()}
        if len(entries) != len(archive.infolist()):
            raise ValueError("two of its entries have one name")
        if any(entry.compress_type != zipfile.ZIP_STORED for entry in entries.values()):
            raise ValueError("compressed, as torch.save never writes; its size cannot be trusted")
        if any(entry.compress_size != entry.file_size for entry in entries.values()):
            raise ValueError("an entry tells two sizes")
        [described] = (name for name in entries if name.count("/") == 1 and name.endswith("/data.pkl"))
        if entries[described].file_size > _MAX_PICKLE_BYTES:
            raise ValueError(f"{described} is larger than {_MAX_PICKLE_BYTES} bytes")
        folder = described.removesuffix("data.pkl")
        order = entries.get(f"{folder}byteorder")
        if order is not None and (order.file_size > _WORD_BYTES or archive.read(order) != b"little"):
            raise ValueError("its numbers are of another byte order than this machine's")
        data = archive.read(described)
    refuse_bombs(data)
    saved = _require_state_dict(_Unpickler(data, path).load(), path)
    storages = _Storages(file, {name: entries[name] for name in entries}, f"{folder}data/")
    return {name: _place(name, record, storages) for name, record in saved.items()}


class _Record:
    """The inert stand-in for an admitted function or class: it stores its arguments and state."""

    kind = ""

    def __init__(self, *arguments: object) -> None:
        self.arguments = arguments

    def __setstate__(self, state: object) -> None:
        self.state = state


class _Dict(dict[object, object]):
    """The stand-in for OrderedDict; a state dict's own attribute `_metadata` is kept and not read."""

    def __init__(self) -> None:
        """Take nothing: a copy of a large dict would cost five bytes of the file."""


@dataclass(frozen=True)
class _Storage:
    """A storage that `data.pkl` names: its entry, and its elements."""

    key: str
    dtype: torch.dtype
    elements: int


class _Unpickler(pickle.Unpickler):
    """Builds records and dicts; refuses a file that asks for anything else."""

    def __init__(self, data: bytes, path: Path) -> None:
        super().__init__(io.BytesIO(data), encoding="utf-8")
        self._path = path
        # Made anew for each file: a pickle may set attributes on whatever class it is given.
        self._admitted: dict[tuple[str, str], object] = {
            key: type(key[1], (_Record,), {"kind": key[1]}) for key in _RECORDS
        }
        self._admitted["collections", _DICT] = type(_DICT, (_Dict,), {})

    def find_class(self, module: str, name: str) -> object:
        if (module, name) in self._admitted:
            return self._admitted[module, name]
        raise CheckpointUnreadable(
            f"{self._path} asks for {module}.{name}, which is no dense tensor; nothing of it was run",
            hint=f"{_SAVE_WEIGHTS}; if you did not write this file, do not trust its origin",
            where=self._path.name,
        )

    def persistent_load(self, pid: object) -> _Storage:
        if not isinstance(pid, tuple) or len(pid) != 5 or pid[0] != "storage":
            raise TypeError("an object outside the pickle that is no storage")
        _, kind, key, _, elements = pid
        dtype = _STORAGES.get(getattr(kind, "kind", ""))
        if dtype is None or not isinstance(key, str) or type(elements) is not int:
            raise TypeError("a storage without a known type, name or size")
        return _Storage(key, dtype, elements)


def _require_state_dict(saved: object, path: Path) -> dict[str, _Record]:
    """Return the file's tensors; raise CheckpointUnreadable if it is no dict of tensors, or holds more."""
    if not isinstance(saved, dict):
        what = saved.kind if isinstance(saved, _Record) else type(saved).__name__
        raise CheckpointUnreadable(
            f"{path} holds {what}, and no dict from names to tensors", hint=_SAVE_WEIGHTS, where=path.name
        )
    others = [str(name) for name, value in saved.items() if not (isinstance(name, str) and _is_tensor(value))]
    if others:
        inner = [name for name in others if _holds_tensors(saved.get(name))]
        advice = f"save the weights alone: torch.save(torch.load(path)[{inner[0]!r}], 'weights.pt')"
        raise CheckpointUnreadable(
            f"{path} holds more than tensors: {name_first(others, most=_FEW)}",
            hint=advice if inner else _SAVE_WEIGHTS,
            where=path.name,
        )
    if not saved or len(saved) > MOST_TENSORS:
        raise ValueError(f"{len(saved):,} tensors, of 1 to {MOST_TENSORS:,}")
    return {str(name): record for name, record in saved.items()}


def _is_tensor(value: object) -> bool:
    return isinstance(value, _Record) and value.kind in (_TENSOR, _PARAMETER)


def _holds_tensors(value: object) -> bool:
    return isinstance(value, dict) and bool(value) and all(map(_is_tensor, value.values()))


class _Storages:
    """The entries of storages, by the keys that `data.pkl` names them by."""

    def __init__(self, file: BinaryIO, entries: Mapping[str, zipfile.ZipInfo], folder: str) -> None:
        self._file = file
        self._entries = entries
        self._folder = folder
        self._length = file.seek(0, io.SEEK_END)
        self._starts: dict[_Storage, int] = {}

    def start(self, storage: _Storage) -> int:
        """Return the byte at which a storage begins; ValueError if the file does not hold all of it."""
        if storage not in self._starts:
            entry = self._entries.get(f"{self._folder}{storage.key}")
            if entry is None:
                raise ValueError(f"storage {storage.key[:20]} is not in the file")
            start = data_start(entry, self._file)
            size = storage.elements * storage.dtype.itemsize
            if storage.elements < 0 or size != entry.file_size or start + size > self._length:
                raise ValueError(f"storage {storage.key[:20]} is cut short, or not of the size that it tells")
            self._starts[storage] = start
        return self._starts[storage]


def _place(name: str, record: _Record, storages: _Storages) -> Place:
    """Return where a tensor lies; ValueError for a layout that does not fit its storage."""
    if record.kind == _PARAMETER:
        inner = record.arguments[0]
        if not isinstance(inner, _Record) or inner.kind != _TENSOR:
            raise TypeError(f"parameter {name} of no tensor")
        record = inner
    storage, offset, shape, stride, *_ = record.arguments
    if not isinstance(storage, _Storage) or type(offset) is not int:
        raise TypeError(f"tensor {name} without a storage")
    sizes, steps = _numbers(shape), _numbers(stride)
    if len(sizes) != len(steps) or len(sizes) > _MOST_AXES:
        raise ValueError(f"tensor {name} has {len(sizes)} axes and {len(steps)} strides")
    count = math.prod(sizes)
    last = offset + sum((size - 1) * step for size, step in zip(sizes, steps, strict=True)) if count else 0
    if offset < 0 or last >= max(storage.elements, 1) or count > storage.elements:
        raise ValueError(f"tensor {name} of shape {list(sizes)} is larger than its storage")
    return Place(
        meta=TensorMeta(shape=sizes, dtype=storage.dtype),
        start=storages.start(storage),
        elements=storage.elements,
        stride=steps,
        offset=offset if count else 0,
    )


def _numbers(value: object) -> tuple[int, ...]:
    if isinstance(value, _Record) and value.kind == _SIZE:
        [value] = value.arguments
    if not isinstance(value, tuple) or any(type(each) is not int or not 0 <= each < _MOST for each in value):
        raise TypeError("sizes that are no numbers")
    return value
