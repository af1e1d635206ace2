"""Copies of published artifacts with other weights, config or manifest: real packages of the same code."""

import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from exporter.aoti.assemble import BLOB_SUFFIX, CODE_FOLDER, assemble_package
from exporter.aoti.constants import read_constants_table
from exporter.aoti.load import read_contents
from exporter.artifact.read import file_ref
from exporter.manifest import Manifest, TowerEntry

Edit = Callable[[dict[str, Tensor]], object]


def altered_copy(artifact: Path, into: Path, edit: Edit, *, job_id: str = "") -> Path:
    """Copy an artifact to `into`, with the weights of each package as `edit` leaves them."""
    shutil.copytree(artifact, into)
    manifest = read(into)
    for entry in manifest.towers:
        for ref in (entry.package, *((entry.sparse.package,) if entry.sparse else ())):
            alter_package(into / ref.path, edit)
    write(into, manifest.model_copy(update={"job_id": job_id or manifest.job_id}))
    return into


def alter_package(path: Path, edit: Edit) -> None:
    """Assemble a package again, with other weights."""
    weights = {name: tensor.clone() for name, tensor in read_contents(path).weights.items()}
    edit(weights)
    with zipfile.ZipFile(path) as archive:
        code = {
            entry.filename.rpartition("/")[2]: archive.read(entry)
            for entry in archive.infolist()
            if f"/{CODE_FOLDER}/" in entry.filename and not entry.filename.endswith(BLOB_SUFFIX)
        }
        blob = [entry.filename.rpartition("/")[2] for entry in archive.infolist()]
    table = read_constants_table(
        next(text for name, text in code.items() if name.endswith("wrapper.cpp")).decode()
    )
    code |= {name: b"" for name in blob if name.endswith(BLOB_SUFFIX)}
    assemble_package(code, table, weights, path)


def read(artifact: Path) -> Manifest:
    return Manifest.model_validate_json((artifact / "manifest.json").read_bytes())


def write(artifact: Path, manifest: Manifest) -> None:
    """Write the manifest, with the digests of the files as they are now."""
    towers = tuple(_with_digests(entry, artifact) for entry in manifest.towers)
    manifest = manifest.model_copy(update={"towers": towers})
    (artifact / "manifest.json").write_text(manifest.model_dump_json())


def _with_digests(entry: TowerEntry, artifact: Path) -> TowerEntry:
    def digest(path: str) -> object:
        return file_ref(path, artifact / path)

    changed: dict[str, object] = {
        "package": digest(entry.package.path),
        "files": tuple(digest(file.path) for file in entry.files),
    }
    if entry.sparse is not None:
        package = digest(entry.sparse.package.path)
        changed["sparse"] = entry.sparse.model_copy(update={"package": package})
    if entry.tables is not None:
        tables = entry.tables
        files = {
            "index": digest(tables.index.path),
            "shards": tuple(digest(file.path) for file in tables.shards),
        }
        changed["tables"] = tables.model_copy(update=files)
    if entry.vectors is not None:
        files = {"files": tuple(digest(file.path) for file in entry.vectors.files)}
        changed["vectors"] = entry.vectors.model_copy(update=files)
    return entry.model_copy(update=changed)


def add_to_rows(suffix: str, rows: list[int], amount: float) -> Edit:
    """Return an edit that adds `amount` to the first number of some rows of the weight of this ending."""

    def edit(weights: dict[str, Tensor]) -> None:
        for name, tensor in weights.items():
            if name.endswith(suffix):
                tensor[torch.tensor(rows), 0] += amount

    return edit
