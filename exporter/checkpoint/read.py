"""Recognise, fetch and open checkpoints without running code that is in them."""

from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Protocol

from torch import Tensor

from exporter.checkpoint.dcp import DcpCheckpoint
from exporter.checkpoint.dcp_metadata import METADATA_NAME
from exporter.checkpoint.dense_ema import AVERAGES, AveragedCheckpoint
from exporter.checkpoint.dynamic_tables import (
    DYNAMICEMB,
    NO_TABLES,
    CheckpointWithDynamicTables,
    WantedTables,
    is_table_file,
)
from exporter.checkpoint.safetensors import SafetensorsCheckpoint
from exporter.checkpoint.state_dict import SUFFIXES as STATE_DICTS
from exporter.checkpoint.state_dict import StateDictCheckpoint
from exporter.checkpoint.tensors import HashFiles, Piece, TensorMeta, hash_files
from exporter.errors import CheckpointUnreadable, SourceNotFound
from exporter.storage.open import local_path, open_store, split_uri
from exporter.storage.store import ArtifactStore

MODEL = "model"  # TorchEasyRec keeps the weights apart from optimizer/ and dense_ema/
SAFETENSORS = ".safetensors"
FILES = (SAFETENSORS, *STATE_DICTS)  # endings of checkpoints that are one file
_NO_AVERAGES = (
    "give the folder around model/ and dense_ema/, or set export_config { use_dense_ema: false } to export "
    "the weights without averages"
)
_NO_DYNAMIC_TABLES = (
    "give the folder around model/ and dynamicemb/, and copy both; dynamicemb/ holds the rows of these tables"
)
_HINT = (
    "give a folder with model/.metadata or .metadata, a .safetensors file or a folder of such, or a .pt file "
    "with a state dict; docs/own-module.md says how to convert others"
)


class Checkpoint(Protocol):
    """Named tensors in files; only the requested ones are read."""

    def tensors(self) -> Mapping[str, TensorMeta]: ...

    def read(self, name: str) -> Tensor:
        """Return one tensor, on the CPU, contiguous and alone in its storage; a large one stays in a file.

        Raises:
            KeyError: `tensors` has no such name.
        """

    def rows(self, name: str, first: int, end: int) -> Tensor:
        """Return rows `first` to `end` - 1 of one tensor, in memory; nothing else of the files is read."""

    def pieces(self, name: str) -> tuple[Piece, ...]:
        """Return the boxes that a tensor is stored in, each mapped in place; together they cover it."""

    def digest(self, hashed: HashFiles = hash_files) -> str:
        """Return a sha256 over the names and contents of the files that hold the tensors."""


def open_checkpoint(
    path: Path, *, averaged: bool = False, dynamic_tables: WantedTables = NO_TABLES
) -> Checkpoint:
    """Open a distributed checkpoint (its `model` folder or the folder around it), .safetensors files, or a
    state dict.

    With `averaged`, dense weights are taken from the folder `dense_ema` beside `model`. The `dynamic_tables`
    must be in the folder `dynamicemb` beside it.
    """
    checkpoint = _open_tensors(path, averaged=averaged)
    if not dynamic_tables:
        return checkpoint
    if not (path / DYNAMICEMB).is_dir():
        raise SourceNotFound(
            f"the config has tables of dynamicemb, and there is no folder {path / DYNAMICEMB}",
            hint=_NO_DYNAMIC_TABLES,
            where=str(path / DYNAMICEMB),
        )
    return CheckpointWithDynamicTables(checkpoint, path / DYNAMICEMB, dynamic_tables)


def _open_tensors(path: Path, *, averaged: bool) -> Checkpoint:
    if averaged:
        if not (path / AVERAGES / METADATA_NAME).is_file():
            raise SourceNotFound(
                f"the config exports averaged weights, and there is no {path / AVERAGES / METADATA_NAME}",
                hint=_NO_AVERAGES,
                where=str(path / AVERAGES),
            )
        return AveragedCheckpoint(DcpCheckpoint(path / MODEL), DcpCheckpoint(path / AVERAGES))
    for folder in (path / MODEL, path):
        if (folder / METADATA_NAME).is_file():
            return DcpCheckpoint(folder)
    if path.is_file() and path.suffix == SAFETENSORS:
        return SafetensorsCheckpoint([path])
    if path.is_file() and path.suffix in STATE_DICTS:
        return StateDictCheckpoint(path)
    if files := sorted(file for file in path.glob(f"*{SAFETENSORS}") if file.is_file()):  # skips pipes
        return SafetensorsCheckpoint(files)
    if not path.exists():
        raise SourceNotFound(f"there is no {path}", hint=_HINT, where=str(path))
    raise CheckpointUnreadable(f"{path} is no checkpoint", hint=_HINT, where=str(path))


def fetch_checkpoint(uri: str, into: Path, *, averaged: bool = False, dynamic_tables: bool = False) -> Path:
    """Copy the weights of a checkpoint into a folder and return the path to open.

    Averages and the tables of dynamicemb are copied too where they are asked for. A checkpoint on this
    machine is not copied, because it may be as large as the disk: its own path is returned.
    """
    path = local_path(uri)
    if path is not None:
        if not path.exists():
            raise SourceNotFound(f"there is no {uri}", hint=_HINT, where=uri)
        return path
    if uri.endswith(FILES):
        folder, name = split_uri(uri)
        open_store(folder).fetch(name, into / name)
        return into / name
    store = open_store(uri)
    for key in _weights(store):
        store.fetch(key, into / key)
    if averaged:  # if there are none, opening the folder reports it
        for file in store.list(AVERAGES):
            store.fetch(file.key, into / file.key)
    if dynamic_tables:  # the same
        for file in store.list(DYNAMICEMB):
            if is_table_file(file.key.rpartition("/")[2]):
                store.fetch(file.key, into / file.key)
    return into


def _weights(store: ArtifactStore) -> Iterator[str]:
    """Return the keys of the files that `open_checkpoint` needs."""
    keys = {PurePosixPath(file.key) for file in store.list()}
    if not keys:
        raise SourceNotFound(f"there is nothing at {store.uri_of('')}", hint=_HINT, where=store.uri_of(""))
    for folder in (PurePosixPath(MODEL), PurePosixPath()):
        if folder / METADATA_NAME in keys:
            return (str(key) for key in sorted(keys) if key.parent == folder)
    files = [str(key) for key in sorted(keys) if key.suffix == SAFETENSORS and len(key.parts) == 1]
    if not files:
        raise CheckpointUnreadable(f"{store.uri_of('')} is no checkpoint", hint=_HINT, where=store.uri_of(""))
    return iter(files)
