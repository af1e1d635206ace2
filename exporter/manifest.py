"""The manifest that describes an artifact; the same types write it and read it."""

from enum import StrEnum
from typing import Literal

from pydantic import Field

from exporter.declaration import TowerDeclaration
from exporter.dtypes import Kernel, Precision, TableDtype
from exporter.options.index_spec import IndexSpec
from exporter.options.layout import Layout, PackageKind
from exporter.samples.entry import FileRef as FileRef  # entries and their readers import it from here
from exporter.samples.entry import SamplesEntry
from exporter.spec import Device, Frozen, IdWeights, Mode, Pass, TowerName

MANIFEST_NAME = "manifest.json"
VECTOR_COLUMN = "vector"  # name of the column of item vectors, beside the items' ids


class TriedSizes(Frozen):
    """The smallest and the largest size in the cases in which package and eager agreed."""

    smallest: int
    largest: int


class ShareEntry(Frozen):
    """Counts of single rows, or of single events, which add up to a dim's size."""

    counts: str = Field(description='What is counted: "values per row", "events per row".')
    high: int | None = Field(
        default=None, description="The most that the config declares; null if it declares none."
    )
    tried: TriedSizes | None = None
    refused: bool = Field(default=False, description="Whether a package refuses more than was tried.")


class DimEntry(Frozen):
    """A dynamic dim of a package's inputs; the package accepts sizes within its bounds."""

    name: str
    low: int
    high: int | None  # None: bounded by nothing in the config
    reason: str
    tried: TriedSizes | None = None  # None: no gate has, or one of an earlier release
    share: ShareEntry | None = None  # of one row, or of one event


class TensorEntry(Frozen):
    """An input or output: each axis is a size, or the name of a dynamic dim."""

    name: str
    dtype: str  # "float32", "int64", ...
    shape: tuple[int | str, ...]


class CaseKind(StrEnum):
    """The property that a verification case proves."""

    AGREES = "agrees"  # package and eager give the same numbers
    REFUSES = "refuses"  # the package rejects inputs that contradict each other


class CaseReport(Frozen):
    """One verification case: its sizes, and the difference between package and eager."""

    name: str
    kind: CaseKind
    sizes: dict[str, int]  # dynamic dim -> size
    passed: bool
    largest_difference: float | None = None  # absolute, over all outputs
    scale: float | None = None  # largest magnitude of the eager output, here or in the largest batch
    output: str | None = None  # the output with the largest difference
    detail: str = ""
    seconds: float | None = None  # that its checks took


class Latency(Frozen):
    """Median milliseconds per call at one batch size, eager and compiled, with the same process settings."""

    batch: int
    eager_ms: float
    compiled_ms: float


class OutputDifference(Frozen):
    """Largest difference of one output from the model in fp32, over all cases that agree with eager."""

    output: str
    largest: float  # absolute
    scale: float  # largest magnitude of the fp32 output in that case, or in the largest ordinary batch
    case: str

    @property
    def relative(self) -> float:
        """The difference as a fraction of the scale; for an output of zeros 0 if equal, else 1."""
        return self.largest / self.scale if self.scale else float(self.largest > 0)


class Fp32Report(Frozen):
    """Accuracy lost by tables or arithmetic of lower precision, output by output."""

    tolerance: float  # allowed difference, as a fraction of an output's scale
    outputs: tuple[OutputDifference, ...]


class ReadBack(Frozen):
    """Bytes of a tower's packages that were read back from the files and compared before they were sent."""

    entries: int = 0  # of the archives: code, sources, metadata, weights
    tensors: int = 0  # weights and constants, all of them
    # Tensors compared with the checkpoint's, or with what was made anew from them (quantised rows, maps of
    # ids). The others are constants of the model's code, compared with the traced program or compiled code.
    from_checkpoint: int = 0
    bytes: int = 0  # of all tensors; every one was compared


class VerificationReport(Frozen):
    """The cases that the package was run on in a fresh process, and how closely it agreed with eager."""

    tolerance: float  # allowed difference, as a fraction of the output's scale
    largest_difference: float
    cases: tuple[CaseReport, ...]
    latency: tuple[Latency, ...] = ()
    fp32: Fp32Report | None = Field(
        default=None,
        description="If tables or arithmetic have a lower precision: the package compared with the model in "
        "fp32. The cases compare it with eager, with the same tables in the same precision.",
    )
    run_by_node: tuple[str, ...] = Field(
        default=(),
        description="Cases in which every node of the traced program gave what tracing had promised. Empty "
        "if nothing was traced: reused code of an equal request passed this with its own program.",
    )
    read_back: ReadBack | None = Field(
        default=None,
        description="None: the artifact was published by a version that did not read files back.",
    )
    seconds: dict[str, float] = {}  # of the gate: programs, eager ahead of the cases, loading, cases


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


class RowError(Frozen):
    """Errors of the rows of a quantised table, over all its rows.

    A row's absolute error is the largest difference of one of its numbers from the original; its relative
    error is the absolute one as a fraction of the row's largest magnitude (for a row of zeros, the absolute
    error itself).
    """

    max_absolute: float
    mean_absolute: float
    max_relative: float
    mean_relative: float


class TableEntry(Frozen):
    """An embedding table of a tower: the dtypes of its rows, the bytes they take, and the error it costs."""

    name: str
    path: str  # in the tower, and with "model." before it in the checkpoint
    rows: int
    width: int
    trained: TableDtype = Field(
        default=TableDtype.FP32, description="Dtype of its rows in the checkpoint: fp32 or fp16."
    )
    dtype: TableDtype = Field(description="Dtype of its rows in the package, or in its shards.")
    fp32_bytes: int = Field(description="Bytes that its rows would take in fp32.")
    bytes: int = Field(description="Bytes that its rows take in `dtype`.")
    error: RowError | None = None  # None: the rows are unchanged


class InferredOp(Frozen):
    """A custom operator whose shape rule was inferred from real runs, not written by its author."""

    name: str
    sizes: tuple[str, ...]  # of its result, in words
    runs: int  # number of runs that confirm the rule


class SlowNode(Frozen):
    """A graph node that took long to trace."""

    node: str
    operator: str
    place: str  # the line of code that it was traced from
    seconds: float  # since the previous node


class TraceTime(Frozen):
    """Time that tracing took, with the slowest graph nodes; the sum for a tower of two packages."""

    nodes: int
    seconds: float
    slowest: tuple[SlowNode, ...]


class SparseEntry(Frozen):
    """The first of a tower's two packages, which takes the tower's inputs, in their order.

    It returns the inputs of the second (`TowerEntry.package`), by name: pass them in the order of `tensors`.
    """

    package: FileRef
    kind: PackageKind = PackageKind.AOTI  # torchscript: called with a dict of inputs and a device
    tensors: tuple[TensorEntry, ...]
    dims: tuple[DimEntry, ...]  # that the tensors' shapes name


class LookupReport(Frozen):
    """Verification of the shards: each rank compared lookups in its own rows with eager ones."""

    cases: int  # sum over all ranks
    refused: int  # cases among them whose inputs contradict each other, which were refused
    own_rows: int = Field(
        description="Rows that were also compared byte by byte with the checkpoint's, or with its rows "
        "quantised anew: every row of every rank. Versions that left out `bytes` compared some of them."
    )
    bytes: int = 0  # of the compared rows and maps of ids, as they lie in the ranks' files
    largest_difference: float


class ShardedTables(Frozen):
    """Tables in shards instead of a package: look up in the shards, then run `TowerEntry.package`.

    The looked-up tensors are that package's inputs, matched by name: pass them in the order of `tensors`.
    """

    index: FileRef  # the file `tables.json`, a `TablesFile`
    shards: tuple[FileRef, ...]  # one file per rank that had rows
    tensors: tuple[TensorEntry, ...]
    dims: tuple[DimEntry, ...]  # that the tensors' shapes name
    verified: LookupReport

    @property
    def all_files(self) -> tuple[FileRef, ...]:
        return (self.index, *self.shards)


class FamilyPackage(Frozen):
    """The installed distribution that provides a custom model family."""

    distribution: str
    version: str


class Metric(StrEnum):
    """The measure by which an index compares a query and an item: the one the model was trained with."""

    COSINE = "cosine"  # searched by inner product: items have unit length, and queries must be scaled to it
    INNER_PRODUCT = "inner_product"
    L2 = "l2"


class IndexEntry(Frozen):
    """A FAISS index over all item vectors, and the recall that was measured on it."""

    file: FileRef
    parameters: IndexSpec  # with every default filled in
    metric: Metric
    labels: Literal["item_ids", "row_numbers"]  # a search returns item ids, or row numbers over all files
    trained_rows: int  # a random sample; 0 for kinds that need no training
    recall_at_10: float | None = Field(
        description="Share that the index finds of the 10 items that exact search finds most like an item, "
        "averaged over `queries` random items; the item itself does not count, and of equally good items "
        "either counts. None: too few items."
    )
    queries: int
    seconds: float
    peak_memory_bytes: int  # peak resident memory of the process that built the index


class VectorsEntry(Frozen):
    """The vectors of all items, in the order of the input's rows; a sample was compared with eager."""

    files: tuple[FileRef, ...]  # parquet files, to be read in this order
    rows: int
    id_column: str  # the input's column of ids, copied unchanged
    id_type: str  # Arrow's name of the ids' type: "int64", "string", ...
    vector_column: str  # name of the column of vectors, each a list of `width` numbers
    width: int
    dtype: str
    output: str  # the package's output that the vectors come from
    checked_rows: int  # rows that were compared with eager, drawn at random from the whole input
    tolerance: float  # allowed difference, as a fraction of the output's scale
    largest_difference: float
    scale: float  # largest magnitude of the eager output
    index: IndexEntry | None = None
    seconds: float  # spent on reading rows, running the package and writing vectors
    rows_per_second: float
    peak_memory_bytes: int = Field(
        description="Peak resident memory while the vectors were computed and checked: the sum of the peaks "
        "of the tower's process and of the package's."
    )

    @property
    def all_files(self) -> tuple[FileRef, ...]:
        return (*self.files, self.index.file) if self.index else self.files


class TowerEntry(Frozen):
    """One published tower: a package, or a sparse and a dense package that run one after the other."""

    name: TowerName
    view: Literal["training", "scalar", "declared"]
    package: FileRef  # the package of the whole tower; in two_stage, of its dense part
    sparse: SparseEntry | None = None  # two_stage only
    tables: ShardedTables | None = None  # in place of `sparse` if the tables are sharded
    files: tuple[FileRef, ...]  # pipeline.config; for TorchEasyRec's families also fg.json, model_acc.json
    inputs: tuple[TensorEntry, ...]
    outputs: tuple[TensorEntry, ...]
    dims: tuple[DimEntry, ...]
    declaration: TowerDeclaration | None = None  # custom families only: how rows become the inputs
    id_weights: IdWeights | None = None  # treatment of the weights of ids; None: it reads no weights
    remarks: tuple[str, ...] = ()  # sentences on differences from TorchEasyRec's answers and files
    demands: tuple[str, ...] = ()  # a refusal "but received n" means that the n-th, from 1, is not met
    inferred_ops: tuple[InferredOp, ...] = ()
    embeddings: tuple[TableEntry, ...] = ()  # the tables; TorchEasyRec's families only
    precision: Precision = Precision.FP32  # below fp32: by autocast; the outputs are fp32 in any case
    tf32: bool = Field(
        default=False,
        description="Products of fp32 matrices may round their factors to TF32, if the server allows it too: "
        "cuBLAS follows the setting of the process that runs the package.",
    )
    kernel: Kernel = Field(
        default=Kernel.PYTORCH,
        description="Implementation of its HSTU layers. Triton's kernels are compiled into the package, "
        "which needs nothing else to run them.",
    )
    passes: tuple[AppliedPass, ...] = ()  # in the order in which they were applied
    code: Literal["cold", "warm"] = "cold"  # compiled for this export, or taken from the code cache
    # If warm. request: neither traced nor compiled; graph: traced, but not compiled.
    reused: Literal["request", "graph"] | None = None
    code_note: str = ""  # why the code is cold, or what happened to a bad entry of the cache
    verified: VerificationReport
    samples: SamplesEntry | None = None  # None: the request asked for none, or an earlier version made it
    vectors: VectorsEntry | None = None  # only of a tower that reads items, if the request asks for them
    stage_seconds: dict[str, float]
    trace: TraceTime | None = None  # None: not traced, because the code of an equal request was reused

    @property
    def served_files(self) -> tuple[FileRef, ...]:
        """The files that are needed to run the tower and to prove that it runs, packages first."""
        sparse = (self.sparse.package,) if self.sparse else ()
        tables = self.tables.all_files if self.tables else ()
        samples = (self.samples.file,) if self.samples else ()
        return (self.package, *sparse, *tables, *self.files, *samples)

    @property
    def all_files(self) -> tuple[FileRef, ...]:
        """Every file of the tower, packages first."""
        return (*self.served_files, *self.vectors.all_files) if self.vectors else self.served_files


class Manifest(Frozen):
    """The content of manifest.json, which is uploaded last: its presence means success."""

    version: Literal[1] = 1
    job_id: str
    created_at: str  # RFC 3339, UTC
    family: str
    family_package: FamilyPackage | None = None  # None: the family is Slipway's
    mode: Mode
    layout: Layout = Layout.SLIPWAY
    device: Device
    architecture: str  # "x86_64 avx512", "sm_90", ...
    max_batch_size: int
    versions: Versions
    op_libraries: tuple[str, ...]  # Python modules a server imports before it loads a package
    sources: tuple[SourceRef, ...]
    towers: tuple[TowerEntry, ...]
