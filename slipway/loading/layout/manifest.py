"""The manifest of an artifact, as far as a server needs it."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from slipway.loading.errors import ArtifactInvalid, TowerMissing
from slipway.loading.layout.json_fields import Fields, read_file

MANIFEST_NAME = "manifest.json"
VERSION = 1
_COMPILED = "aoti"  # the kind of packages that this loader loads


@dataclass(frozen=True, kw_only=True)
class FileRef:
    """A file of the artifact: its path below the artifact's root, size in bytes and digest."""

    path: str
    size: int
    sha256: str

    @classmethod
    def read(cls, fields: Fields) -> "FileRef":
        """Read an entry."""
        return cls(path=fields.path("path"), size=fields.number("size"), sha256=fields.text("sha256"))


@dataclass(frozen=True, kw_only=True)
class TensorEntry:
    """An input or output: each axis is a size, or the name of a dim that varies."""

    name: str
    dtype: str  # "float32", "int64", ...
    shape: tuple[int | str, ...]

    def __str__(self) -> str:
        return f"{self.name}: {self.dtype} {list(self.shape)}".replace("'", "")

    @classmethod
    def read(cls, fields: Fields) -> "TensorEntry":
        """Read an entry."""
        shape: list[int | str] = []
        for axis in fields.items("shape"):
            if not isinstance(axis, int | str):
                raise ArtifactInvalid(f"{fields.where}.shape is no shape", where=fields.where)
            shape.append(axis)
        return cls(name=fields.text("name"), dtype=fields.text("dtype"), shape=tuple(shape))


@dataclass(frozen=True, kw_only=True)
class Dim:
    """A size that varies, with its bounds; `high` is None if nothing bounds it."""

    name: str
    low: int
    high: int | None

    @classmethod
    def read(cls, fields: Fields) -> "Dim":
        """Read an entry."""
        high = fields.number("high") if fields.has("high") else None
        return cls(name=fields.text("name"), low=fields.number("low"), high=high)


@dataclass(frozen=True, kw_only=True)
class ShardedTables:
    """Tables in files of rows, which a lookup reads in place of a first package."""

    index: FileRef
    shards: tuple[FileRef, ...]


@dataclass(frozen=True, kw_only=True)
class SampleCase:
    """A sample request: how far each output may be from the published answer."""

    name: str
    allowed: Mapping[str, float]  # output -> largest absolute difference

    @classmethod
    def read(cls, fields: Fields) -> "SampleCase":
        """Read an entry."""
        return cls(name=fields.text("name"), allowed=fields.decimals("allowed"))


@dataclass(frozen=True, kw_only=True)
class Tower:
    """A tower: its packages in calling order, and its inputs and outputs in the order of the packages."""

    name: str
    packages: tuple[FileRef, ...]
    files: tuple[FileRef, ...]  # pipeline.config and others
    inputs: tuple[TensorEntry, ...]
    outputs: tuple[TensorEntry, ...]
    dims: tuple[Dim, ...]
    demands: tuple[str, ...]  # a refusal "but received n" means that the n-th, from 1, is not met
    tables: ShardedTables | None
    samples: FileRef | None  # inputs with their answers
    sample_cases: tuple[SampleCase, ...] = ()  # that the file holds

    @property
    def all_files(self) -> tuple[FileRef, ...]:
        """All files that a server may read, packages first."""
        tables = (self.tables.index, *self.tables.shards) if self.tables else ()
        samples = (self.samples,) if self.samples else ()
        return (*self.packages, *tables, *self.files, *samples)

    @classmethod
    def read(cls, fields: Fields) -> "Tower":
        """Read an entry."""
        packages = [FileRef.read(fields.child("package"))]
        if fields.has("sparse"):
            packages.insert(0, _read_sparse(fields.child("sparse")))
        tables = None
        if fields.has("tables"):
            sharded = fields.child("tables")
            tables = ShardedTables(
                index=FileRef.read(sharded.child("index")),
                shards=tuple(map(FileRef.read, sharded.children("shards"))),
            )
        samples = fields.child("samples") if fields.has("samples") else None
        return cls(
            name=fields.text("name"),
            packages=tuple(packages),
            files=tuple(map(FileRef.read, fields.children("files"))),
            inputs=tuple(map(TensorEntry.read, fields.children("inputs"))),
            outputs=tuple(map(TensorEntry.read, fields.children("outputs"))),
            dims=tuple(map(Dim.read, fields.children("dims"))),
            demands=fields.texts("demands"),
            tables=tables,
            samples=FileRef.read(samples.child("file")) if samples else None,
            sample_cases=tuple(map(SampleCase.read, samples.children("cases"))) if samples else (),
        )


def _read_sparse(fields: Fields) -> FileRef:
    """Read the package of the lookups, which must be compiled."""
    kind = fields.text("kind") if fields.has("kind") else _COMPILED
    if kind != _COMPILED:
        raise ArtifactInvalid(
            f"{fields.where}: the lookups are {kind}, in the layout of TorchEasyRec",
            hint="load the tower's folder with TorchEasyRec's own loader, or export with layout slipway",
            where=fields.where,
        )
    return FileRef.read(fields.child("package"))


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """The description of an artifact."""

    job_id: str
    device: str  # "cpu" or "cuda"
    architecture: str  # "x86_64 avx512", "sm_90", ...
    torch: str  # versions
    fbgemm: str
    cuda: str | None
    op_libraries: tuple[str, ...]
    towers: tuple[Tower, ...]

    def tower(self, name: str, where: str) -> Tower:
        """Return a tower; raise TowerMissing if the artifact at `where` has none of this name."""
        for tower in self.towers:
            if tower.name == name:
                return tower
        names = ", ".join(tower.name for tower in self.towers)
        raise TowerMissing(f"{where} has no tower {name!r}; it has: {names}", where=where)


def read_manifest_bytes(folder: Path) -> bytes:
    """Read the manifest's bytes; raise ArtifactInvalid if the folder has none."""
    path = folder / MANIFEST_NAME
    if not path.is_file():
        raise ArtifactInvalid(f"{folder} is not an artifact: it has no {MANIFEST_NAME}", where=str(path))
    return read_file(path)


def parse_manifest(data: bytes, where: str) -> Manifest:
    """Parse a manifest; raise ArtifactInvalid if this version of Slipway cannot read it."""
    fields = Fields.parse(data, where)
    if fields.number("version") != VERSION:
        raise ArtifactInvalid(
            f"{where} has version {fields.number('version')}, and this loader reads {VERSION}", where=where
        )
    versions = fields.child("versions")
    return Manifest(
        job_id=fields.text("job_id"),
        device=fields.text("device"),
        architecture=fields.text("architecture"),
        torch=versions.text("torch"),
        fbgemm=versions.text("fbgemm"),
        cuda=versions.text("cuda") if versions.has("cuda") else None,
        op_libraries=fields.texts("op_libraries"),
        towers=tuple(map(Tower.read, fields.children("towers"))),
    )
