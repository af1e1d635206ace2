"""Tables of NVIDIA's dynamicemb, which lie beside a checkpoint's tensors and grow in training.

`DynamicEmbDump` writes a folder for every collection of tables, named by the collection's path in the model.
In it are two files of plain numbers for each table and rank: the keys, int64, in no order, and the rows of
these keys, float32. Scores, counters and states of the optimizer beside them are not read, and nothing is
unpickled. Files are named as by `encode_checkpoint_file_path` in corelib/dynamicemb of
github.com/NVIDIA/recsys-examples.
"""

import hashlib
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import torch
from torch import Tensor

from exporter.checkpoint.errors import IdMapBroken
from exporter.checkpoint.keymap import FREE_ID, ID_MAP_IDS, ID_MAP_ROWS
from exporter.checkpoint.mapped_tensor import MappedFiles, map_part, room_for
from exporter.checkpoint.tensors import HashFiles, Piece, TensorMeta, digest_files, hash_files, raw_of
from exporter.errors import CheckpointMismatch, CheckpointUnreadable

DYNAMICEMB = "dynamicemb"  # TorchEasyRec's folder for them, beside model/

# Width of a table that is wanted, and the number that fills the row of unknown ids, by the table's path below
# its embedding group.
WantedTables = Mapping[str, tuple[int, float]]
NO_TABLES: WantedTables = {}

_FILE = re.compile(r"(.+)_emb_(keys|values)\.rank_([0-9]{1,6})\.world_size_([0-9]{1,6})")
_MOST_FILES = 1 << 18  # of keys and rows
_HINT = "copy the checkpoint again, or export another step"
_KEY, _NUMBER = torch.int64.itemsize, torch.float32.itemsize


class _Inner(Protocol):
    """The part of `read.Checkpoint` that is needed of the checkpoint beside the tables."""

    def tensors(self) -> Mapping[str, TensorMeta]: ...
    def read(self, name: str) -> Tensor: ...
    def rows(self, name: str, first: int, end: int) -> Tensor: ...
    def pieces(self, name: str) -> tuple[Piece, ...]: ...
    def digest(self, hashed: HashFiles = hash_files) -> str: ...


@dataclass(frozen=True, kw_only=True)
class _Part:
    """The keys and rows of one rank."""

    keys: Path
    values: Path
    count: int


@dataclass(kw_only=True)
class _Table:
    """A table as tensors: the ranks' rows one after another, the row of unknown ids, and the map of ids."""

    name: str  # of the table's module, as in a checkpoint
    id_map: str
    parts: tuple[_Part, ...]
    width: int
    unknown: float
    mapped: MappedFiles = field(default_factory=MappedFiles)

    @property
    def rows(self) -> int:
        return sum(part.count for part in self.parts) + 1

    @property
    def metas(self) -> dict[str, TensorMeta]:
        ids = TensorMeta(shape=(self.rows,), dtype=torch.int64)
        rows = TensorMeta(shape=(self.rows, self.width), dtype=torch.float32)
        return {
            f"{self.name}.weight": rows,
            f"{self.id_map}.{ID_MAP_IDS}": ids,
            f"{self.id_map}.{ID_MAP_ROWS}": ids,
        }

    def pieces(self) -> tuple[Piece, ...]:
        """Return the rows of every rank, mapped, and the row of unknown ids."""
        pieces, first = [], 0
        for part in self.parts:
            if part.count:
                size = self.width * _NUMBER
                raw = self.mapped.part(part.values, 0, part.count * size).reshape(part.count, size)
                pieces.append(Piece(offset=(first, 0), raw=raw, dtype=torch.float32))
            first += part.count
        unknown = raw_of(torch.full((1, self.width), self.unknown))
        return (*pieces, Piece(offset=(first, 0), raw=unknown, dtype=torch.float32))

    def map_ids(self) -> dict[str, Tensor]:
        """Return the keys in ascending order with the row of each, and a free slot with the last row.

        Raises:
            IdMapBroken: a key is there twice.
        """
        keys = [map_part(part.keys, 0, part.count * _KEY).view(torch.int64) for part in self.parts]
        ids, rows = torch.sort(torch.cat([*keys, torch.tensor([FREE_ID])]), stable=True)
        if len(twice := (ids[1:] == ids[:-1]).nonzero()) and (key := int(ids[twice[0]])) != FREE_ID:
            raise IdMapBroken(f"{self.name}: key {key} is there twice", where=self.name)
        meta = TensorMeta(shape=(self.rows,), dtype=torch.int64)
        tensors = {ID_MAP_IDS: ids, ID_MAP_ROWS: rows}
        return {f"{self.id_map}.{name}": room_for(meta).copy_(tensors[name]) for name in tensors}


class CheckpointWithDynamicTables:
    """A checkpoint and the tables of dynamicemb in a folder beside it, frozen: each with a map of its ids."""

    def __init__(self, inner: _Inner, folder: Path, wanted: WantedTables) -> None:
        """List the tables in the folder.

        Raises:
            CheckpointMismatch: the folder lacks a table that is wanted.
            CheckpointUnreadable: files are missing or contradict each other.
        """
        self.inner, self._folder = inner, folder
        self._tables = {table.name: table for table in _list_tables(folder, wanted)}
        self._owners = {name: table for table in self._tables.values() for name in table.metas}
        self._maps: dict[str, Tensor] = {}
        found = tuple(f".{name}" for name in self._tables)
        if missing := [path for path in wanted if not any(name.endswith(f".{path}") for name in found)]:
            raise CheckpointMismatch(
                missing=[f"{DYNAMICEMB}/…: keys and values of {path}" for path in missing],
                unexpected=[],
                mismatched=[],
                where=DYNAMICEMB,
            )

    def tensors(self) -> Mapping[str, TensorMeta]:
        tables = {name: meta for table in self._tables.values() for name, meta in table.metas.items()}
        return {**self.inner.tensors(), **tables}  # the checkpoint may have placeholders of the tables

    def read(self, name: str) -> Tensor:
        if name not in self._owners:
            return self.inner.read(name)
        table = self._owners[name]
        if not name.endswith(".weight"):
            return self._map(name)
        whole = room_for(table.metas[name])
        for piece in table.pieces():
            first, count = piece.offset[0], piece.shape[0]
            whole[first : first + count].view(torch.uint8).copy_(piece.raw)
        return whole

    def rows(self, name: str, first: int, end: int) -> Tensor:
        if name not in self._owners:
            return self.inner.rows(name, first, end)
        if not name.endswith(".weight"):
            return self._map(name)[first:end].clone()
        found = [
            piece.raw[max(first - start, 0) : max(end - start, 0)]
            for piece in self._owners[name].pieces()
            for start in piece.offset[:1]
        ]
        return torch.cat(found).view(torch.float32)

    def pieces(self, name: str) -> tuple[Piece, ...]:
        if name not in self._owners:
            return self.inner.pieces(name)
        if name.endswith(".weight"):
            return self._owners[name].pieces()
        return (Piece(offset=(0,), raw=raw_of(self._map(name)), dtype=torch.int64),)

    def keys_of_map(self, name: str) -> tuple[Tensor, ...] | None:
        """Return the keys of each rank, as they lie in its file, of the map with a tensor of this name.

        None: the map is no table's of dynamicemb.
        """
        table = self._owners.get(name)
        if table is None:
            return None
        return tuple(map_part(part.keys, 0, part.count * _KEY).view(torch.int64) for part in table.parts)

    def digest(self, hashed: HashFiles = hash_files) -> str:
        parts = (part for table in self._tables.values() for part in table.parts)
        files = [str(path.relative_to(self._folder)) for part in parts for path in (part.keys, part.values)]
        tables = digest_files(self._folder, files, hashed)
        both = f"{self.inner.digest(hashed)}  model\n{tables}  {DYNAMICEMB}\n"
        return hashlib.sha256(both.encode()).hexdigest()

    def _map(self, name: str) -> Tensor:
        if name not in self._maps:
            self._maps |= self._owners[name].map_ids()
        return self._maps[name]


def is_table_file(name: str) -> bool:
    """Return whether a file of a collection's folder holds keys or rows of a table."""
    return _FILE.fullmatch(name) is not None


def _list_tables(folder: Path, wanted: WantedTables) -> Iterator[_Table]:
    if not folder.is_dir():
        return
    left = _MOST_FILES
    for collection in sorted(path for path in folder.iterdir() if path.is_dir()):
        files: dict[str, dict[tuple[str, int, int], Path]] = {}
        with os.scandir(collection) as entries:
            for entry in entries:
                if (match := _FILE.fullmatch(entry.name)) is None or not entry.is_file():
                    continue
                table, item, rank, size = match.groups()
                files.setdefault(table, {})[item, int(rank), int(size)] = Path(entry.path)
                left -= 1
                if left < 0:
                    raise CheckpointUnreadable(
                        f"{folder} holds more than {_MOST_FILES:,} files", where=DYNAMICEMB
                    )
        for table, found in sorted(files.items()):
            yield _open_table(collection, table, found, wanted)


def _open_table(
    collection: Path, table: str, files: Mapping[tuple[str, int, int], Path], wanted: WantedTables
) -> _Table:
    """Check that the files of a table are complete and fit together; their contents are not read yet."""
    where = f"{DYNAMICEMB}/{collection.name}/{table}"
    sizes = {size for _, _, size in files}
    if len(sizes) > 1:
        _refuse(where, f"there are files of {' and of '.join(map(str, sorted(sizes)))} ranks")
    [size] = sizes
    every = [(item, rank, size) for item in ("keys", "values") for rank in range(size)]
    if lacking := [f"{item} of rank {rank}" for item, rank, _ in every if (item, rank, size) not in files]:
        _refuse(where, f"of {size} ranks, {lacking[0]} are missing")
    if len(files) > len(every):
        _refuse(where, f"there are files of more than {size} ranks")
    parts, width = [], None
    for rank in range(size):
        keys, values = files["keys", rank, size], files["values", rank, size]
        count, odd = divmod(keys.stat().st_size, _KEY)
        if odd:
            _refuse(where, f"{keys.name} holds {keys.stat().st_size} bytes, no number of keys of {_KEY}")
        numbers, odd = divmod(values.stat().st_size, _NUMBER)
        if (
            odd
            or (numbers % count if count else numbers)
            or (width not in (None, numbers // max(count, 1)) and count)
        ):
            _refuse(where, f"{values.name} holds {values.stat().st_size} bytes, no rows of {count} keys")
        width = numbers // count if count else width
        parts.append(_Part(keys=keys, values=values, count=count))
    module = (
        collection.name.removeprefix("model.")
        if collection.name.startswith("model.model.")
        else collection.name
    )
    kind = "embedding_bags" if module.endswith("ebc") else "embeddings"
    name = f"{module}.{kind}.{table}"
    own = next((each for path, each in wanted.items() if name.endswith(f".{path}")), (0, 0.0))
    return _Table(
        name=name,
        id_map=f"{module}.{DYNAMICEMB}.{table}",
        parts=tuple(parts),
        width=own[0] if width is None else width,
        unknown=own[1],
    )


def _refuse(where: str, problem: str) -> None:
    raise CheckpointUnreadable(f"{where}: {problem}", hint=_HINT, where=where)
