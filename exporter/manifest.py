"""The artifact's description: written by one type, read by the same type."""

from enum import StrEnum
from typing import Literal

from exporter.declaration import TowerDeclaration
from exporter.spec import Device, Frozen, IdWeights, Mode, Pass, TowerName

MANIFEST_NAME = "manifest.json"


class FileRef(Frozen):
    """A file of the artifact, by its path below the artifact's root."""

    path: str
    size: int  # bytes
    sha256: str


class DimEntry(Frozen):
    """A dynamic dim of a package's inputs: its bounds are the input contract."""

    name: str
    low: int
    high: int | None  # None: bounded by nothing in the config
    reason: str


class TensorEntry(Frozen):
    """An input or output: each axis is a size, or the name of a dynamic dim."""

    name: str
    dtype: str  # "float32", "int64", ...
    shape: tuple[int | str, ...]


class CaseKind(StrEnum):
    """What a verification case proves."""

    AGREES = "agrees"  # package and eager give the same numbers
    REFUSES = "refuses"  # the package rejects inputs that contradict each other


class CaseReport(Frozen):
    """One verification case: its sizes, and how far package and eager are apart."""

    name: str
    kind: CaseKind
    sizes: dict[str, int]  # dynamic dim -> size
    passed: bool
    largest_difference: float | None = None  # absolute, over all outputs
    scale: float | None = None  # largest magnitude of the eager output
    output: str | None = None  # the output with the largest difference
    detail: str = ""


class Latency(Frozen):
    """Median milliseconds per call at one batch size, eager and compiled, same process settings."""

    batch: int
    eager_ms: float
    compiled_ms: float


class VerificationReport(Frozen):
    """What was tried on the package in a fresh process, and how closely it agreed."""

    tolerance: float  # allowed difference, as a fraction of the output's scale
    largest_difference: float
    cases: tuple[CaseReport, ...]
    latency: tuple[Latency, ...] = ()


class SourceRef(Frozen):
    """An input of the export, and the digest of what was read from it."""

    role: Literal["config", "checkpoint", "item_input", "sample_input"]
    uri: str
    sha256: str


class Versions(Frozen):
    """The versions a package depends on."""

    slipway: str
    python: str
    torch: str
    torchrec: str
    fbgemm: str
    triton: str
    cuda: str | None


class AppliedPass(Frozen):
    """An edit of the traced program, and the calls of submodules that it changed."""

    asked: Pass
    calls: tuple[str, ...]


class SparseEntry(Frozen):
    """The first of a tower's two packages: run it on the tower's inputs, in their order.

    What it returns are the inputs of the second one (`TowerEntry.package`), joined by name: pass them in
    the order of `tensors`.
    """

    package: FileRef
    tensors: tuple[TensorEntry, ...]
    dims: tuple[DimEntry, ...]  # that the tensors' shapes name


class FamilyPackage(Frozen):
    """The installed distribution that a model family of one's own came from."""

    distribution: str
    version: str


class TowerEntry(Frozen):
    """One published tower: a package, or a sparse one and a dense one to be run one after the other."""

    name: TowerName
    view: Literal["training", "scalar", "declared"]
    package: FileRef  # of the whole tower; in two_stage of its dense part
    sparse: SparseEntry | None = None  # two_stage only
    files: tuple[FileRef, ...]  # pipeline.config, and of TorchEasyRec's families fg.json, model_acc.json
    inputs: tuple[TensorEntry, ...]
    outputs: tuple[TensorEntry, ...]
    dims: tuple[DimEntry, ...]
    declaration: TowerDeclaration | None = None  # of a family of one's own: how rows become the inputs
    id_weights: IdWeights | None = None  # what it does with the weights of ids; None: it reads none
    remarks: tuple[str, ...] = ()  # where its answers are not TorchEasyRec's own, in words
    demands: tuple[str, ...] = ()  # a package that refuses "but received n" found the n-th unmet, from 1
    passes: tuple[AppliedPass, ...] = ()  # in the order in which they were applied
    verified: VerificationReport
    stage_seconds: dict[str, float]

    @property
    def all_files(self) -> tuple[FileRef, ...]:
        """Every file of the tower, packages first."""
        sparse = (self.sparse.package,) if self.sparse else ()
        return (self.package, *sparse, *self.files)


class Manifest(Frozen):
    """The artifact: its presence is success."""

    version: Literal[1] = 1
    job_id: str
    created_at: str  # RFC 3339, UTC
    family: str
    family_package: FamilyPackage | None = None  # None: the family is Slipway's
    mode: Mode
    device: Device
    architecture: str  # "x86_64 avx512", "sm_90", ...
    max_batch_size: int
    versions: Versions
    op_libraries: tuple[str, ...]  # Python modules a server imports before it loads a package
    sources: tuple[SourceRef, ...]
    towers: tuple[TowerEntry, ...]
