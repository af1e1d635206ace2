"""State dicts of torch.save that lie, run code or take all memory."""

import io
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path

import torch

from exporter.checkpoint.read import open_checkpoint
from tests.hostile.checkpoints import Runs
from tests.hostile.kinds import hostile

STATE_DICT = "state dict"


def read(folder: Path, content: object) -> object:
    torch.save(content, folder / "x.pt")
    return read_all(folder / "x.pt")


def read_all(path: Path) -> object:
    checkpoint = open_checkpoint(path)
    return [checkpoint.read(name) for name in checkpoint.tensors()]


def altered(folder: Path, alter: Callable[[str, bytes], bytes | None], *, compression: int = 0) -> object:
    """Read a state dict whose entries were changed, or left out where `alter` returns None."""
    torch.save({"a": torch.ones(4), "b": torch.ones(1000)}, folder / "true.pt")
    with zipfile.ZipFile(folder / "true.pt") as true, zipfile.ZipFile(folder / "x.pt", "w") as false:
        for name in true.namelist():
            if (data := alter(name, true.read(name))) is not None:
                false.writestr(name, data, compress_type=compression)
    return read_all(folder / "x.pt")


def with_pickle(folder: Path, data: bytes) -> object:
    return altered(folder, lambda name, given: data if name.endswith("data.pkl") else given)


@hostile("a state dict with a command among its tensors", reader=STATE_DICT)
def _(folder: Path) -> object:
    return read(folder, {"a": torch.ones(2), "b": Runs(folder)})


@hostile("a command in the place of a state dict", reader=STATE_DICT)
def _(folder: Path) -> object:
    return read(folder, Runs(folder))


@hostile("a command in the format before torch 1.6", reader=STATE_DICT)
def _(folder: Path) -> object:
    torch.save(Runs(folder), folder / "x.pt", _use_new_zipfile_serialization=False)
    return read_all(folder / "x.pt")


@hostile("attributes set on the class of state dicts", reader=STATE_DICT)
def _(folder: Path) -> object:
    return with_pickle(folder, b"ccollections\nOrderedDict\n(N(S'keys'\nI1\ndtb.")


@hostile("a memo entry far out in a state dict", reader=STATE_DICT)
def _(folder: Path) -> object:
    return with_pickle(folder, b"\x80\x02Nr" + struct.pack("<I", 0x7FFFFFFF) + b".")


@hostile("a state dict nested 200,000 deep", reader=STATE_DICT)
def _(folder: Path) -> object:
    return with_pickle(folder, b"\x80\x02" + b"]" * 200_000 + b"a" * 199_999 + b".")


@hostile("a tensor of 2^40 numbers that are all one number", reader=STATE_DICT)
def _(folder: Path) -> object:
    return read(folder, {"a": torch.ones(1).expand(1 << 40)})


@hostile("a tensor that reaches beyond its storage", reader=STATE_DICT)
def _(folder: Path) -> object:
    def longer(name: str, data: bytes) -> bytes:
        return data.replace(b"M\xe8\x03\x85", b"M\xe9\x03\x85") if name.endswith("data.pkl") else data

    return altered(folder, longer)


@hostile("a storage that is cut short", reader=STATE_DICT)
def _(folder: Path) -> object:
    return altered(folder, lambda name, data: data[:-1] if name.endswith("data/1") else data)


@hostile("a storage that is not there", reader=STATE_DICT)
def _(folder: Path) -> object:
    return altered(folder, lambda name, data: None if name.endswith("data/1") else data)


@hostile("a state dict whose entries are compressed, 1 GB in a few bytes", reader=STATE_DICT)
def _(folder: Path) -> object:
    def inflate(name: str, data: bytes) -> bytes:
        return bytes(1 << 30) if name.endswith("data.pkl") else data

    return altered(folder, inflate, compression=zipfile.ZIP_DEFLATED)


@hostile("a state dict with two entries of one name", reader=STATE_DICT)
def _(folder: Path) -> object:
    torch.save({"a": torch.ones(4)}, folder / "x.pt")
    content = io.BytesIO((folder / "x.pt").read_bytes())
    with zipfile.ZipFile(content, "a") as archive:
        archive.writestr("x/data/1", b"")
        archive.writestr("x/data/2", b"")
    (folder / "x.pt").write_bytes(content.getvalue().replace(b"x/data/2", b"x/data/1"))
    return read_all(folder / "x.pt")


@hostile("a state dict whose directory is announced as 4 GB", reader=STATE_DICT)
def _(folder: Path) -> object:
    torch.save({"a": torch.ones(4)}, folder / "x.pt")
    data = bytearray((folder / "x.pt").read_bytes())
    end = data.rfind(b"PK\x05\x06")
    data[end + 12 : end + 16] = struct.pack("<I", 0xFFFFFFF0)
    (folder / "x.pt").write_bytes(data)
    return read_all(folder / "x.pt")


def _many(callee: bytes, argument: bytes, times: int) -> bytes:
    """Return a pickle of a list: so often what `callee` makes of one `argument`."""
    one = b"h\x00h\x01\x85R"
    return b"\x80\x02" + callee + b"q\x00" + argument + b"q\x01" + b"](" + one * times + b"e."


@hostile("sizes of a megabyte of text, five thousand times", reader=STATE_DICT)
def _(folder: Path) -> object:
    text = b"X" + struct.pack("<I", 1 << 20) + b"a" * (1 << 20)
    return with_pickle(folder, _many(b"ctorch\nSize\n", text, 5_000))


@hostile("copies of a large dict, ten thousand times", reader=STATE_DICT)
def _(folder: Path) -> object:
    pairs = b"".join(b"J" + struct.pack("<i", number) + b"N" for number in range(20_000))
    return with_pickle(folder, _many(b"ccollections\nOrderedDict\n", b"}(" + pairs + b"u", 10_000))


@hostile("a name that is a tuple nested a hundred thousand deep", reader=STATE_DICT)
def _(folder: Path) -> object:
    return with_pickle(folder, b"\x80\x02})" + b"\x85" * 100_000 + b"Ns.")


@hostile("a storage told in two sizes", reader=STATE_DICT)
def _(folder: Path) -> object:
    def larger(name: str, data: bytes) -> bytes:
        if not name.endswith("data.pkl"):
            return data
        at = data.index(b"M\xe8\x03t")  # 1,000 elements, at the end of the storage of `b`
        return data[:at] + b"\x8a\x06" + (1 << 40).to_bytes(6, "little") + data[at + 3 :]

    return altered(folder, larger)
