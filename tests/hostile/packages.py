"""Artifacts and cached code of strangers: manifests that point elsewhere, archives that escape or unfold."""

import contextlib
import hashlib
import io
import json
import zipfile
from pathlib import Path

from cli.main import build_parser
from exporter.aoti.load import check_archive
from exporter.artifact.read import fetch_tower, file_ref, read_manifest
from exporter.code_cache.entry import unpack_entry
from exporter.errors import InvalidArtifact
from exporter.manifest import FileRef
from exporter.spec import TowerName
from tests.hostile.kinds import CANARY, hostile
from tests.jobs.factories import make_entry, make_manifest

MANIFEST = "manifest"
PACKAGE = "package (.pt2)"
CACHE = "code cache"


def published(folder: Path, *, path: str, size: int = 4, text: bytes = b"code") -> Path:
    """An artifact whose manifest names its package so."""
    root = folder / "artifact"
    root.mkdir()
    (root / "package").write_bytes(text)
    named = file_ref(path, root / "package").model_copy(update={"size": size})
    entry = make_entry(TowerName.USER).model_copy(update={"package": named, "files": ()})
    (root / "manifest.json").write_text(make_manifest("job1", entry).model_dump_json())
    return root


def fetched(folder: Path, path: str) -> object:
    root = published(folder, path=path)
    (folder / "outside").write_bytes(b"code")
    return fetch_tower(str(root), TowerName.USER, folder / "into")


@hostile("a file outside of the artifact, by ../", reader=MANIFEST)
def _(folder: Path) -> object:
    return fetched(folder, "../outside")


@hostile("a file by an absolute path", reader=MANIFEST)
def _(folder: Path) -> object:
    return fetched(folder, "/etc/hostname")


@hostile("a file whose name has NUL", reader=MANIFEST)
def _(folder: Path) -> object:
    return fetched(folder, "user/a\0b")


@hostile("a file of 2^62 bytes", reader=MANIFEST)
def _(folder: Path) -> object:
    return fetch_tower(str(published(folder, path="package", size=1 << 62)), TowerName.USER, folder / "into")


@hostile("a digest of another file", reader=MANIFEST)
def _(folder: Path) -> object:
    root = published(folder, path="package")
    (root / "package").write_bytes(b"evil")
    return fetch_tower(str(root), TowerName.USER, folder / "into")


@hostile("a manifest of a gigabyte", reader=MANIFEST)
def _(folder: Path) -> object:
    with (folder / "manifest.json").open("wb") as file:
        file.truncate(1 << 30)
    return read_manifest(str(folder))


@hostile("a manifest nested 100,000 deep", reader=MANIFEST)
def _(folder: Path) -> object:
    (folder / "manifest.json").write_text('{"towers":' + "[" * 100_000)
    return read_manifest(str(folder))


@hostile("a manifest that clears the terminal and turns text", reader="slipway inspect", ends="unread")
def _(folder: Path) -> object:
    root = published(folder, path="package")
    manifest = json.loads((root / "manifest.json").read_text())
    manifest["family"] = "\x1b[2J\u202e evil"
    (root / "manifest.json").write_text(json.dumps(manifest))
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        for options in ([], ["--full"]):
            arguments = build_parser().parse_args(["inspect", str(root), *options])
            arguments.run(arguments)
    if "\x1b" in out.getvalue() or "\u202e" in out.getvalue():
        (folder / CANARY).touch()
    return None


def archive(folder: Path, *names: str, data: bytes = b"x", link: bool = False) -> Path:
    path = folder / "aoti_model.pt2"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for name in ("aoti_model/data/aotinductor/model/a.so", *names):
            info = zipfile.ZipInfo(name)
            info.compress_type = zipfile.ZIP_DEFLATED
            info.external_attr = (0o120777 if link else 0o644) << 16
            file.writestr(info, data)
    return path


@hostile("an entry that escapes by ../", reader=PACKAGE)
def _(folder: Path) -> None:
    check_archive(archive(folder, f"aoti_model/data/aotinductor/model/../../../../{CANARY}"))


@hostile("an entry by an absolute path", reader=PACKAGE)
def _(folder: Path) -> None:
    check_archive(archive(folder, f"{folder}/{CANARY}"))


@hostile("an entry that escapes by ..\\", reader=PACKAGE)
def _(folder: Path) -> None:
    check_archive(archive(folder, f"aoti_model\\..\\..\\{CANARY}"))


@hostile("an entry that is a link", reader=PACKAGE)
def _(folder: Path) -> None:
    check_archive(archive(folder, "aoti_model/data/link", data=b"/etc", link=True))


@hostile("an entry that unfolds to gigabytes", reader=PACKAGE)
def _(folder: Path) -> None:
    check_archive(archive(folder, "aoti_model/data/zeros", data=bytes(64 << 20)))


@hostile("an archive that is none", reader=PACKAGE)
def _(folder: Path) -> None:
    (folder / "x.pt2").write_bytes(b"PK\x05\x06" + b"\xff" * 18)
    check_archive(folder / "x.pt2")


def cached(members: dict[str, bytes]) -> object:
    """An entry that says of itself what an honest one does."""
    digests = {name: hashlib.sha256(data).hexdigest() for name, data in members.items()}
    index = {
        "layout": 1,
        "fingerprint": "f",
        "digests": digests,
        "state": {},
        "outputs": [],
        "op_libraries": [],
    }
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("entry.json", json.dumps(index))
        for name, data in members.items():
            file.writestr(name, data)
    if unpack_entry(packed.getvalue(), "f") is None:
        raise InvalidArtifact("taken for nothing")  # which is how the cache refuses
    return None


HONEST = {"code/a.wrapper.cpp": b"", "values.safetensors": (2).to_bytes(8, "little") + b"{}"}


@hostile("code whose name escapes", reader=CACHE)
def _(folder: Path) -> object:
    return cached({**HONEST, "code/../../evil.so": b"x"})


@hostile("code that unfolds to gigabytes", reader=CACHE)
def _(folder: Path) -> object:
    return cached({**HONEST, "code/a.so": bytes(256 << 20)})


@hostile("an index of members that are not there", reader=CACHE)
def _(folder: Path) -> object:
    return unpack_or_refuse(b"PK\x03\x04" + b"x" * 100)


def unpack_or_refuse(data: bytes) -> object:
    if unpack_entry(data, "f") is None:
        raise InvalidArtifact("taken for nothing")
    return FileRef
