"""The index of a prepared folder: which files belong to it, with digests, and where each weight lies."""

import hashlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path

from slipway.loading.errors import ArtifactDamaged, ArtifactInvalid
from slipway.loading.layout.digests import CHUNK
from slipway.loading.layout.json_fields import Fields, read_file
from slipway.loading.layout.manifest import FileRef

INDEX_NAME = "prepared.json"
DIGEST_NAME = "prepared.json.sha256"  # written last: a folder without it is not complete
_FORMAT, _VERSION = "slipway-prepared", 1


@dataclass(frozen=True, kw_only=True)
class PlacedTensor:
    """A weight in a file: `offset` and `nbytes` in bytes, shape and stride in elements."""

    name: str  # fully qualified, in the traced module
    dtype: str  # "float32", ...
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int
    nbytes: int


@dataclass(frozen=True, kw_only=True)
class PreparedWeights:
    """A file of weights: page-aligned, with the leaves of its tree in a file beside it."""

    path: str
    size: int
    leaves: str
    root: str
    tensors: tuple[PlacedTensor, ...]


@dataclass(frozen=True, kw_only=True)
class PreparedPackage:
    """An unpacked package."""

    package: str  # path in the artifact of the file that it was made of
    folder: str
    library: str
    code: tuple[FileRef, ...]
    code_sha256: str  # equal where the code is equal
    weights: PreparedWeights | None


@dataclass(frozen=True, kw_only=True)
class PreparedShard:
    """A file of rows, with the leaves of its tree in a file beside it."""

    path: str
    size: int
    leaves: str
    root: str


@dataclass(frozen=True, kw_only=True)
class PreparedTables:
    """Sharded tables, as in the artifact."""

    index: FileRef
    shards: tuple[PreparedShard, ...]


@dataclass(frozen=True, kw_only=True)
class PreparedTower:
    """A tower: its packages in calling order, and its other files."""

    name: str
    files: tuple[FileRef, ...]
    packages: tuple[PreparedPackage, ...]
    tables: PreparedTables | None


@dataclass(frozen=True, kw_only=True)
class PreparedIndex:
    """The content of prepared.json."""

    job_id: str
    manifest_sha256: str
    towers: tuple[PreparedTower, ...]

    def tower(self, name: str, where: Path) -> PreparedTower:
        """Return a tower; raise ArtifactInvalid if it was not prepared."""
        for tower in self.towers:
            if tower.name == name:
                return tower
        raise ArtifactInvalid(
            f"{where} was prepared without the tower {name!r}",
            hint="prepare it anew, with all towers",
            where=str(where),
        )

    def write(self, folder: Path) -> tuple[Path, Path]:
        """Write the index and, last, its digest; return both files."""
        content = {"format": _FORMAT, "version": _VERSION, "chunk": CHUNK, **asdict(self)}
        data = json.dumps(content, indent=1).encode()
        index, digest = folder / INDEX_NAME, folder / DIGEST_NAME
        index.write_bytes(data)
        digest.write_text(hashlib.sha256(data).hexdigest() + "\n")
        return index, digest


def is_prepared(folder: Path) -> bool:
    """Return whether `slipway prepare` began to write this folder."""
    return (folder / INDEX_NAME).is_file()


def read_index(folder: Path, manifest: bytes) -> PreparedIndex:
    """Read the index of a prepared folder whose manifest has these bytes.

    Raises:
        ArtifactDamaged: the folder is not complete, or index and manifest do not belong together.
        ArtifactInvalid: this version cannot read the index.
    """
    path = folder / INDEX_NAME
    data = read_file(path)
    recorded = read_file(folder / DIGEST_NAME).strip()
    if hashlib.sha256(data).hexdigest().encode() != recorded:
        raise ArtifactDamaged(f"{path} is damaged: its digest is not the recorded one", where=str(path))
    fields = Fields.parse(data, str(path))
    found = fields.text("format"), fields.number("version"), fields.number("chunk")
    if found != (_FORMAT, _VERSION, CHUNK):
        raise ArtifactInvalid(
            f"{path} is of another version",
            hint="prepare the artifact again with this version of Slipway",
            where=str(path),
        )
    if hashlib.sha256(manifest).hexdigest() != fields.text("manifest_sha256"):
        raise ArtifactDamaged(f"{folder}: manifest.json is not the one that was prepared", where=str(folder))
    return PreparedIndex(
        job_id=fields.text("job_id"),
        manifest_sha256=fields.text("manifest_sha256"),
        towers=tuple(map(_tower, fields.children("towers"))),
    )


def _tower(fields: Fields) -> PreparedTower:
    tables = None
    if fields.has("tables"):
        sharded = fields.child("tables")
        tables = PreparedTables(
            index=FileRef.read(sharded.child("index")), shards=tuple(map(_shard, sharded.children("shards")))
        )
    return PreparedTower(
        name=fields.text("name"),
        files=tuple(map(FileRef.read, fields.children("files"))),
        packages=tuple(map(_package, fields.children("packages"))),
        tables=tables,
    )


def _shard(fields: Fields) -> PreparedShard:
    return PreparedShard(
        path=fields.path("path"),
        size=fields.number("size"),
        leaves=fields.path("leaves"),
        root=fields.text("root"),
    )


def _package(fields: Fields) -> PreparedPackage:
    return PreparedPackage(
        package=fields.path("package"),
        folder=fields.path("folder"),
        library=fields.path("library"),
        code=tuple(map(FileRef.read, fields.children("code"))),
        code_sha256=fields.text("code_sha256"),
        weights=_weights(fields.child("weights")) if fields.has("weights") else None,
    )


def _weights(fields: Fields) -> PreparedWeights:
    weights = PreparedWeights(
        path=fields.path("path"),
        size=fields.number("size"),
        leaves=fields.path("leaves"),
        root=fields.text("root"),
        tensors=tuple(map(_tensor, fields.children("tensors"))),
    )
    for tensor in weights.tensors:
        if tensor.offset + tensor.nbytes > weights.size:
            raise ArtifactInvalid(f"{fields.where}: {tensor.name} ends behind its file", where=fields.where)
    return weights


def _tensor(fields: Fields) -> PlacedTensor:
    return PlacedTensor(
        name=fields.text("name"),
        dtype=fields.text("dtype"),
        shape=fields.numbers("shape"),
        stride=fields.numbers("stride"),
        offset=fields.number("offset"),
        nbytes=fields.number("nbytes"),
    )
