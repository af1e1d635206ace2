"""Limits of an export's inputs: files and bytes of its checkpoint and rows, counted before any is read."""

import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from exporter.checkpoint.dense_ema import AVERAGES
from exporter.checkpoint.dynamic_tables import DYNAMICEMB, is_table_file
from exporter.checkpoint.read import FILES, MODEL
from exporter.data.parquet import open_parquet
from exporter.errors import InvalidSpec, SourceNotFound, StorageError
from exporter.spec import ExportSpec, Frozen
from exporter.storage.open import local_path, open_store, split_uri
from exporter.storage.uris import GATE_ROWS


@dataclass(frozen=True, kw_only=True)
class CheckpointFile:
    """A file of a checkpoint; its name is the path below the checkpoint."""

    name: str
    size: int
    local: Path | None = None  # None in an object store


class InputLimits(Frozen):
    """The largest inputs that are read; larger ones are refused at once, and not after hours."""

    checkpoint_files: int
    checkpoint_bytes: int
    rows_files: int
    rows_bytes: int

    def require(self, spec: ExportSpec) -> None:
        """Raise InvalidSpec if the checkpoint or the rows of the spec are larger."""
        checkpoint = (file.size for file in list_checkpoint_files(spec.checkpoint_uri))
        _require_within("checkpoint_uri", checkpoint, self.checkpoint_files, self.checkpoint_bytes)
        for field, uri in (
            ("item_input_uri", spec.item_input_uri),
            ("sample_input_uri", spec.sample_input_uri),
            (GATE_ROWS, spec.gate_rows_uri),
        ):
            if uri is not None:
                _require_within(field, _row_sizes(uri), self.rows_files, self.rows_bytes)


def _require_within(field: str, sizes: Iterable[int], most_files: int, most_bytes: int) -> None:
    files, total = 0, 0
    for size in sizes:
        files, total = files + 1, total + size
        if files > most_files or total > most_bytes:
            raise InvalidSpec(
                f"{field} is more than the {most_files:,} files or {most_bytes:,} bytes that are read",
                hint="name a smaller one, or ask the operator to raise the limit",
                where=field,
            )


def _row_sizes(uri: str) -> tuple[int, ...]:
    """Return the sizes of the files; none where there are none, as the tower that needs them will say so."""
    try:
        return open_parquet(uri).sizes()
    except (SourceNotFound, StorageError):
        return ()


def list_checkpoint_files(uri: str) -> Iterator[CheckpointFile]:
    """Yield the files that may hold weights; optimizers and other state of training are not read."""
    path = local_path(uri)
    if path is None:
        yield from _list_stored_checkpoint_files(uri)
        return
    collections = [folder for folder in sorted((path / DYNAMICEMB).glob("*")) if folder.is_dir()]
    for place in (path, path / MODEL, path / AVERAGES, *collections):
        if place.is_dir():
            with os.scandir(place) as entries:
                for entry in entries:
                    if entry.is_file() and (place not in collections or is_table_file(entry.name)):
                        yield CheckpointFile(
                            name=str(Path(entry.path).relative_to(path)),
                            size=entry.stat().st_size,
                            local=Path(entry.path),
                        )
        elif place.is_file():
            yield CheckpointFile(name=place.name, size=place.stat().st_size, local=place)


def _list_stored_checkpoint_files(uri: str) -> Iterator[CheckpointFile]:
    if uri.endswith(FILES):  # what lies beside it is not read, and a job may not be allowed to list it
        folder, name = split_uri(uri)
        with suppress(SourceNotFound):  # the tower that needs it will say so
            yield CheckpointFile(name=name, size=open_store(folder).stat(name).size)
        return
    for file in open_store(uri).list():
        folder, _, name = file.key.rpartition("/")
        is_dynamic = folder.startswith(f"{DYNAMICEMB}/") and is_table_file(name)
        if folder in ("", MODEL, AVERAGES) or is_dynamic:
            yield CheckpointFile(name=file.key, size=file.size)
