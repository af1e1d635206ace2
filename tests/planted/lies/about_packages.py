"""Lies about packages as they lie on disk: one bit of one of the archive's files is another."""

import random
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

from exporter.checkpoint.stored_zip import data_start
from exporter.packages import package_tower
from exporter.packages.parts import CompiledPart, assemble_parts
from tests.planted.lies.lie import Lie, Plant


def _flip(path: Path, draw: random.Random) -> None:
    with zipfile.ZipFile(path) as archive, path.open("rb") as file:
        entry = draw.choice([each for each in archive.infolist() if each.file_size])
        at = data_start(entry, file) + draw.randrange(entry.file_size)
    data = bytearray(path.read_bytes())
    data[at] ^= 1 << draw.randrange(8)
    path.write_bytes(data)


def _flip_once_written(seed: int) -> Plant:
    @contextmanager
    def plant() -> Iterator[None]:
        draw = random.Random(seed)

        def assemble(*arguments: object) -> tuple[CompiledPart, ...]:
            parts = assemble_parts(*arguments)  # type: ignore[arg-type]  # passed on as they came
            for part in parts:
                _flip(part.package.path, draw)
            return parts

        with mock.patch.object(package_tower, "assemble_parts", assemble):
            yield

    return plant


FLIPS = tuple(
    Lie(
        name=f"flipped_bit_{seed}",
        does="one bit of each package is written wrongly",
        plant=_flip_once_written(seed),
        code="",
        says=(),
    )
    for seed in range(3)
)
