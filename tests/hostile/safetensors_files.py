"""Safetensors files whose headers lie."""

import json
import os
import struct
from pathlib import Path

from exporter.checkpoint.read import open_checkpoint
from tests.hostile.kinds import hostile

HEADER = "safetensors header"


def opened(folder: Path, header: str | bytes, data: bytes = b"", *, length: int | None = None) -> object:
    raw = header.encode() if isinstance(header, str) else header
    path = folder / "x.safetensors"
    path.write_bytes(struct.pack("<Q", len(raw) if length is None else length) + raw + data)
    checkpoint = open_checkpoint(path)
    return [checkpoint.read(name).sum() for name in checkpoint.tensors()]


def entry(shape: list[int], start: int, end: int, dtype: str = "F32") -> dict[str, object]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [start, end]}


@hostile("a header of 2^63 bytes, announced", reader=HEADER)
def _(folder: Path) -> object:
    return opened(folder, "{}", length=1 << 63)


@hostile("a header that goes on behind the file's end", reader=HEADER)
def _(folder: Path) -> object:
    return opened(folder, "{}", length=1 << 20)


@hostile("values behind the file's end", reader=HEADER)
def _(folder: Path) -> object:
    return opened(folder, json.dumps({"a": entry([1 << 20], 0, 4 << 20)}), bytes(16))


@hostile("offsets that do not fit the shape", reader=HEADER)
def _(folder: Path) -> object:
    return opened(folder, json.dumps({"a": entry([1 << 18], 0, 16)}), bytes(16))


@hostile("sizes whose product is more than 2^64", reader=HEADER)
def _(folder: Path) -> object:
    return opened(folder, json.dumps({"a": entry([1 << 62, 1 << 62], 0, 16)}), bytes(16))


@hostile("two tensors in the same bytes", reader=HEADER)
def _(folder: Path) -> object:
    both = {"a": entry([4], 0, 16), "b": entry([4], 0, 16)}
    return opened(folder, json.dumps(both), bytes(16))


@hostile("one name twice, for two readers to disagree on", reader=HEADER)
def _(folder: Path) -> object:
    first, second = json.dumps(entry([4], 0, 16)), json.dumps(entry([4], 1 << 40, (1 << 40) + 16))
    return opened(folder, f'{{"a": {first}, "a": {second}}}', bytes(16))


@hostile("a header nested 100,000 deep", reader=HEADER)
def _(folder: Path) -> object:
    return opened(folder, '{"a":' + "[" * 100_000 + "]" * 100_000 + "}")


@hostile("a header that is no text", reader=HEADER)
def _(folder: Path) -> object:
    return opened(folder, b"\xff\xfe{}" * 4)


@hostile("a pipe among the files of a folder", reader="safetensors folder")
def _(folder: Path) -> object:
    os.mkfifo(folder / "x.safetensors")
    return open_checkpoint(folder)
