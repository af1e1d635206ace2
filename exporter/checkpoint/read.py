"""Open a checkpoint by its type and list its tensors, without running its code."""

from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Protocol

from torch import Tensor

from exporter.checkpoint.dcp import DcpCheckpoint
from exporter.checkpoint.dcp_metadata import METADATA_NAME
from exporter.checkpoint.dense_ema import AVERAGES, AveragedCheckpoint
from exporter.checkpoint.safetensors import SafetensorsCheckpoint
from exporter.checkpoint.tensors import HashFiles, Piece, TensorMeta, hash_files
from exporter.errors import CheckpointUnreadable, SourceNotFound
from exporter.storage.open import local_path, open_store, split_uri
from exporter.storage.store import ArtifactStore

MODEL = "model"  # TorchEasyRec keeps the weights apart from optimizer/ and dense_ema/
SAFETENSORS = ".safetensors"
_NO_AVERAGES = (
    "give the folder around model/ and dense_ema/, or set export_config { use_dense_ema: false } to export "
    "the weights without averages"
)
_HINT = "give a folder with model/.metadata or .metadata, a .safetensors file, or a folder of such"


class Checkpoint(Protocol):
    """Named tensors in files; only the ones asked for are read."""

    def tensors(self) -> Mapping[str, TensorMeta]: ...

    def read(self, name: str) -> Tensor:
        """One tensor, on the CPU, contiguous and alone in its storage; a large one stays in a file.

        A name that `tensors` lacks is a KeyError.
        """

    def rows(self, name: str, first: int, end: int) -> Tensor:
        """The rows from `first` up to `end` of one tensor, in memory; nothing else of the files is read."""

    def pieces(self, name: str) -> tuple[Piece, ...]:
        """The boxes a tensor is stored in, which cover it: each where it lies, nothing put together."""

    def digest(self, hashed: HashFiles = hash_files) -> str:
        """sha256 over the names and contents of the files the tensors are read from."""


def open_checkpoint(path: Path, *, averaged: bool = False) -> Checkpoint:
    """Open a distributed checkpoint (its `model` folder or the folder around it) or .safetensors files.

    With `averaged`, dense weights are those of the folder `dense_ema` beside `model`.
    """
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
    if files := sorted(file for file in path.glob(f"*{SAFETENSORS}") if file.is_file()):  # no pipe
        return SafetensorsCheckpoint(files)
    if not path.exists():
        raise SourceNotFound(f"there is no {path}", hint=_HINT, where=str(path))
    raise CheckpointUnreadable(f"{path} is no checkpoint", hint=_HINT, where=str(path))


def fetch_checkpoint(uri: str, into: Path, *, averaged: bool = False) -> Path:
    """Bring the weights of a checkpoint here, and nothing else of it; returns what to open.

    Their averages come with them where `averaged` asks for them.

    One that is on this machine already is opened in place: it may be as large as the disk.
    """
    path = local_path(uri)
    if path is not None:
        if not path.exists():
            raise SourceNotFound(f"there is no {uri}", hint=_HINT, where=uri)
        return path
    if uri.endswith(SAFETENSORS):
        folder, name = split_uri(uri)
        open_store(folder).fetch(name, into / name)
        return into / name
    store = open_store(uri)
    for key in _weights(store):
        store.fetch(key, into / key)
    if averaged:  # opening the folder misses them where there are none
        for file in store.list(AVERAGES):
            store.fetch(file.key, into / file.key)
    return into


def _weights(store: ArtifactStore) -> Iterator[str]:
    """The keys that `open_checkpoint` would read, were they files of a folder."""
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
