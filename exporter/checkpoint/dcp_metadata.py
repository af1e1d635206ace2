"""The `.metadata` file of a distributed checkpoint, read without running what is pickled in it.

torch's own reader unpickles the file with every class and function of the process in reach. Here a
handful of names is admitted, and each of them stands for an inert record, made anew for every file: a
pickle may set attributes on whatever class it is given, so it is given none of torch's.
"""

import io
import itertools
import math
import pickle
import reprlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import torch

from exporter.checkpoint.pickle_bombs import TooManyObjects, refuse_bombs
from exporter.checkpoint.tensors import TensorMeta
from exporter.errors import CheckpointUnreadable

METADATA_NAME = ".metadata"
MAX_METADATA_BYTES = 256 << 20  # a chunk of a tensor takes some 150 bytes
MOST_CHUNKS = 1 << 18  # of all tensors: 1,000 tables by row over 256 ranks
MOST_TENSORS = 1 << 17
MOST_AXES = 8

_HINT = "copy the checkpoint again, or export another step"
_FEWER_HINT = "save the weights without optimizers, by table or by row over fewer ranks"
_COMPARISONS = 1 << 20  # of pairs of chunks, for the message about two that overlap
_METADATA, _FILESYSTEM = "torch.distributed.checkpoint.metadata", "torch.distributed.checkpoint.filesystem"
_SIZE = "Size"  # a record too: made a tuple, it would copy whatever it is given
_RECORDS = {
    (_METADATA, "Metadata"),
    (_METADATA, "TensorStorageMetadata"),
    (_METADATA, "BytesStorageMetadata"),
    (_METADATA, "ChunkStorageMetadata"),
    (_METADATA, "MetadataIndex"),
    (_METADATA, "TensorProperties"),
    (_METADATA, "StorageMeta"),
    (_METADATA, "_MEM_FORMAT_ENCODING"),
    (_FILESYSTEM, "_StorageInfo"),
    ("torch.serialization", "_get_layout"),
    ("torch", _SIZE),
    # StorageMeta holds the path that the trainer saved to, if it was given one.
    ("pathlib", "PosixPath"),
    ("pathlib", "WindowsPath"),
    ("pathlib._local", "PosixPath"),  # Python 3.13
    ("pathlib._local", "WindowsPath"),
}


@dataclass(frozen=True, kw_only=True)
class Chunk:
    """A box of a tensor, and the bytes of a file that hold it."""

    offset: tuple[int, ...]  # of the box in the tensor, per axis
    size: tuple[int, ...]
    file: str
    start: int  # bytes
    length: int

    @property
    def volume(self) -> int:
        return math.prod(self.size)

    def overlaps(self, other: "Chunk") -> bool:
        return all(
            mine < theirs + their_size and theirs < mine + my_size
            for mine, my_size, theirs, their_size in zip(
                self.offset, self.size, other.offset, other.size, strict=True
            )
        )


@dataclass(frozen=True, kw_only=True)
class StoredTensor:
    """A tensor, and the chunks that cover it without gap or overlap."""

    meta: TensorMeta
    chunks: tuple[Chunk, ...]


class _ImpossibleTensor(Exception):
    """A tensor's entry contradicts itself or the other entries."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(f"tensor {name} {reason}")
        self.name = name


class _Record:
    """The inert stand-in for an admitted class: it stores its arguments and state."""

    kind = ""

    def __init__(self, *arguments: object) -> None:
        self.arguments = arguments

    def __setstate__(self, state: object) -> None:
        self.state = state


class _Unpickler(pickle.Unpickler):
    """Builds records, tuples and dtypes; refuses a file that asks for anything else."""

    def __init__(self, data: bytes, path: Path) -> None:
        super().__init__(io.BytesIO(data))
        self._path = path
        self._records = {key: type(key[1], (_Record,), {"kind": key[1]}) for key in _RECORDS}

    def find_class(self, module: str, name: str) -> object:
        if (module, name) in self._records:
            return self._records[module, name]
        if module == "torch" and isinstance(dtype := getattr(torch, name, None), torch.dtype):
            return dtype
        raise CheckpointUnreadable(
            f"{self._path} asks for {module}.{name}, which describes no tensor; nothing of it was run",
            hint="do not trust the origin of this checkpoint: torch writes no such name",
            where=METADATA_NAME,
        )


def read_metadata(path: Path) -> dict[str, StoredTensor]:
    """Return the checkpoint's tensors by name; entries that are no tensors are left out.

    Raises:
        CheckpointUnreadable: torch did not write the file, or it describes an impossible tensor.
    """
    data = _read_bounded(path)
    try:
        refuse_bombs(data)
        metadata = _Unpickler(data, path).load()
        return _parse_tensors(metadata)
    except CheckpointUnreadable:
        raise
    except _ImpossibleTensor as error:
        raise CheckpointUnreadable(f"{path}: {error}", hint=_HINT, where=error.name) from error
    except TooManyObjects as error:
        problem = f"{path} describes more than is read: {error}"
        raise CheckpointUnreadable(problem, hint=_FEWER_HINT, where=METADATA_NAME) from error
    except Exception as error:  # bytes from a stranger may raise any error
        raise CheckpointUnreadable(
            f"{path} does not describe a distributed checkpoint: {type(error).__name__}: {str(error)[:300]}",
            hint=_HINT,
            where=METADATA_NAME,
        ) from error


def _read_bounded(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            data = file.read(MAX_METADATA_BYTES + 1)
    except OSError as error:
        raise CheckpointUnreadable(f"{path} could not be read: {error.strerror}", where=path.name) from error
    if len(data) > MAX_METADATA_BYTES:
        raise CheckpointUnreadable(f"{path} holds more than {MAX_METADATA_BYTES} bytes", where=path.name)
    return data


def _parse_tensors(metadata: object) -> dict[str, StoredTensor]:
    fields = _fields(metadata, "Metadata")
    stored, entries = _mapping(fields["storage_data"]), _mapping(fields["state_dict_metadata"])
    for count, most, things in (
        (len(stored), MOST_CHUNKS, "chunks"),
        (sum(map(_count_chunks, entries.values())), MOST_CHUNKS, "chunks"),
        (len(entries), MOST_TENSORS, "tensors"),
    ):
        if count > most:
            raise TooManyObjects(f"{count:,} {things}, of at most {most:,}")
    places = _places(stored)
    return {
        _text(name): _parse_tensor(_text(name), _fields(entry, "TensorStorageMetadata"), places)
        for name, entry in entries.items()
        if not _is_record(entry, "BytesStorageMetadata")
    }


def _count_chunks(entry: object) -> int:
    if _is_record(entry, "BytesStorageMetadata"):
        return 0
    chunks = _fields(entry, "TensorStorageMetadata")["chunks"]
    return len(chunks) if isinstance(chunks, list) else 0


_Places = Mapping[tuple[str, tuple[int, ...]], Mapping[object, object]]


def _places(storage_data: Mapping[object, object]) -> _Places:
    """Index storage entries by tensor name and offset; entries without an offset are no tensors."""
    places: dict[tuple[str, tuple[int, ...]], Mapping[object, object]] = {}
    for index, info in storage_data.items():
        at = _fields(index, "MetadataIndex")
        if at.get("offset") is None:
            continue
        key = _text(at["fqn"]), _sizes(at["offset"])
        place = _fields(info, "_StorageInfo")
        if key in places:
            files = " and ".join(str(each.get("relative_path")) for each in (places[key], place))
            raise _ImpossibleTensor(key[0], f"has chunks that overlap: two at {list(key[1])}, in {files}")
        places[key] = place
    return places


def _parse_tensor(name: str, fields: Mapping[object, object], places: _Places) -> StoredTensor:
    properties = fields["properties"]
    if not _is_record(properties, "TensorProperties"):
        raise TypeError(f"properties of {name}")
    dtype, layout, *_ = properties.state  # type: ignore[attr-defined]  # set while unpickling
    if not isinstance(dtype, torch.dtype) or layout.arguments != ("torch.strided",):
        raise _ImpossibleTensor(name, "is not a dense one")
    boxes = fields["chunks"]
    if not isinstance(boxes, list):
        raise TypeError(f"chunks of {name}")
    chunks = [_parse_chunk(name, _fields(box, "ChunkStorageMetadata"), places) for box in boxes]
    shape = _sizes(fields["size"])
    solid = tuple(chunk for chunk in chunks if chunk.volume)
    _check_cover(name, shape, solid)
    return StoredTensor(meta=TensorMeta(shape=shape, dtype=dtype), chunks=solid)


def _parse_chunk(name: str, box: Mapping[object, object], places: _Places) -> Chunk:
    offset = _sizes(box["offsets"])
    place = places.get((name, offset))
    if place is None:
        raise _ImpossibleTensor(name, f"has a chunk at {list(offset)} that no file holds")
    file = _text(place["relative_path"])
    if file in ("", ".", "..") or PurePosixPath(file).name != file or "\0" in file:
        raise _ImpossibleTensor(name, f"points at {file!r}, which could lie outside the checkpoint")
    if place.get("transform_descriptors"):
        raise _ImpossibleTensor(name, f"is stored in {file} through a stream extension")
    start, length = _sizes((place["offset"], place["length"]))
    return Chunk(offset=offset, size=_sizes(box["sizes"]), file=file, start=start, length=length)


def _check_cover(name: str, shape: tuple[int, ...], chunks: Sequence[Chunk]) -> None:
    """Require that every element of the tensor is in exactly one chunk."""
    if len(shape) > MOST_AXES:
        raise _ImpossibleTensor(name, f"has {len(shape)} axes, more than the {MOST_AXES} that are read")
    for chunk in chunks:
        reach = [start + size for start, size in zip(chunk.offset, chunk.size, strict=True)]
        if len(reach) != len(shape) or any(end > size for end, size in zip(reach, shape, strict=True)):
            raise _ImpossibleTensor(name, f"of shape {list(shape)} has a chunk that ends at {reach}")
    covered, whole = sum(chunk.volume for chunk in chunks), math.prod(shape)
    if covered < whole:
        raise _ImpossibleTensor(name, f"has a gap: its chunks hold {covered} of {whole} elements")
    if covered > whole or not _tile(shape, chunks):
        overlap = (
            f"{list(each.offset)} of size {list(each.size)} in {each.file}" for each in _overlap(chunks)
        )
        raise _ImpossibleTensor(name, f"has chunks that overlap: {', '.join(overlap) or 'two of many'}")


def _tile(shape: tuple[int, ...], chunks: Sequence[Chunk]) -> bool:
    """Return whether boxes cover a whole exactly once.

    A box is determined by its corners with alternating signs, and so is a sum of boxes: the corners where
    boxes meet must cancel out, and leave those of the whole. This takes no comparison of boxes.
    """
    corners: Counter[tuple[int, ...]] = Counter()
    _add_corners(corners, (0,) * len(shape), shape, -1)
    for chunk in chunks:
        _add_corners(corners, chunk.offset, chunk.size, 1)
    return not any(corners.values())


def _add_corners(
    corners: Counter[tuple[int, ...]], offset: tuple[int, ...], size: tuple[int, ...], sign: int
) -> None:
    ends = ((start, start + length) for start, length in zip(offset, size, strict=True))
    for number, corner in enumerate(itertools.product(*ends)):
        corners[corner] += -sign if number.bit_count() % 2 else sign


def _overlap(chunks: Sequence[Chunk]) -> tuple[Chunk, ...]:
    """Return two chunks that overlap, for a message, or none where finding them takes too long."""
    axes = len(chunks[0].offset)
    axis = max(range(axes), key=lambda axis: len({chunk.offset[axis] for chunk in chunks}), default=0)
    ordered = sorted(chunks, key=lambda chunk: chunk.offset[axis : axis + 1])
    for first, second in itertools.islice(_neighbours(ordered, axis), _COMPARISONS):
        if first.overlaps(second):
            return first, second
    return ()


def _neighbours(ordered: Sequence[Chunk], axis: int) -> Iterator[tuple[Chunk, Chunk]]:
    """Yield the pairs of chunks that overlap along an axis, by which they are ordered."""
    for position, first in enumerate(ordered):
        for other in range(position + 1, len(ordered)):
            second = ordered[other]
            if axis < len(first.offset) and second.offset[axis] >= first.offset[axis] + first.size[axis]:
                break
            yield first, second


def _is_record(value: object, kind: str) -> bool:
    return isinstance(value, _Record) and value.kind == kind


def _fields(value: object, kind: str) -> Mapping[object, object]:
    if not isinstance(value, _Record) or value.kind != kind:
        raise TypeError(f"{type(value).__name__} where {kind} belongs")
    return _mapping(value.state)


def _mapping(value: object) -> Mapping[object, object]:
    if not isinstance(value, dict):
        raise TypeError(f"{type(value).__name__} where a dict belongs")
    return value


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{type(value).__name__} where a name belongs")
    return value


def _sizes(value: object) -> tuple[int, ...]:
    if isinstance(value, _Record) and value.kind == _SIZE:
        [value] = value.arguments
    if not isinstance(value, tuple) or any(type(size) is not int or size < 0 for size in value):
        raise TypeError(f"{reprlib.repr(value)} where sizes belong")
    return value
