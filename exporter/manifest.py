"""The artifact's description: written by one type, read by the same type."""

from enum import StrEnum
from typing import Literal

from pydantic import Field

from exporter.declaration import TowerDeclaration
from exporter.dtypes import Kernel, Precision, TableDtype
from exporter.index_spec import IndexSpec
from exporter.spec import Device, Frozen, IdWeights, Mode, Pass, TowerName

MANIFEST_NAME = "manifest.json"
VECTOR_COLUMN = "vector"  # beside the items' ids


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
    scale: float | None = None  # largest magnitude of the eager output, here or in the largest batch
    output: str | None = None  # the output with the largest difference
    detail: str = ""


class Latency(Frozen):
    """Median milliseconds per call at one batch size, eager and compiled, same process settings."""

    batch: int
    eager_ms: float
    compiled_ms: float


class OutputDifference(Frozen):
    """How far an output of the package is from the model in fp32, over all cases that agree with eager."""

    output: str
    largest: float  # absolute
    scale: float  # largest magnitude of the fp32 output in that case, or in the largest ordinary batch
    case: str

    @property
    def relative(self) -> float:
        """The difference as a fraction of the scale; an output of zeros differs by nothing, or wholly."""
        return self.largest / self.scale if self.scale else float(self.largest > 0)


class Fp32Report(Frozen):
    """What tables or arithmetic of lower precision cost, output by output."""

    tolerance: float  # allowed difference, as a fraction of an output's scale
    outputs: tuple[OutputDifference, ...]


class VerificationReport(Frozen):
    """What was tried on the package in a fresh process, and how closely it agreed."""

    tolerance: float  # allowed difference, as a fraction of the output's scale
    largest_difference: float
    cases: tuple[CaseReport, ...]
    latency: tuple[Latency, ...] = ()
    fp32: Fp32Report | None = Field(
        default=None,
        description="Where tables or arithmetic are of lower precision: the package against the model in "
        "fp32. The cases hold it against eager with the same tables in the same precision.",
    )
    run_by_node: tuple[str, ...] = Field(
        default=(),
        description="Cases in which every node of the traced program gave what tracing had promised. None "
        "where nothing was traced: code of an equal request is kept once its own program has passed this.",
    )


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
    """How far the rows of a quantised table are from what they were, over all rows.

    A row's absolute error is the largest difference of one of its numbers; its relative error is that as a
    fraction of the row's largest magnitude, of a row of zeros the absolute one.
    """

    max_absolute: float
    mean_absolute: float
    max_relative: float
    mean_relative: float


class TableEntry(Frozen):
    """An embedding table of a tower: what its rows are kept in, and what that saves and costs."""

    name: str
    path: str  # in the tower, and with "model." before it in the checkpoint
    rows: int
    width: int
    dtype: TableDtype
    fp32_bytes: int
    bytes: int
    error: RowError | None = None  # None: the rows are as they were


class InferredOp(Frozen):
    """A custom operator whose shape rule was inferred from real runs, and not written by its author."""

    name: str
    sizes: tuple[str, ...]  # of its result, in words
    runs: int  # that bear the rule out


class SlowNode(Frozen):
    """A graph node that took long to trace."""

    node: str
    operator: str
    place: str  # the line of code that it was traced from
    seconds: float  # since the node before it


class TraceTime(Frozen):
    """What tracing took, by graph node; of two packages, both together."""

    nodes: int
    seconds: float
    slowest: tuple[SlowNode, ...]


class SparseEntry(Frozen):
    """The first of a tower's two packages: run it on the tower's inputs, in their order.

    What it returns are the inputs of the second one (`TowerEntry.package`), joined by name: pass them in
    the order of `tensors`.
    """

    package: FileRef
    tensors: tuple[TensorEntry, ...]
    dims: tuple[DimEntry, ...]  # that the tensors' shapes name


class TableRows(Frozen):
    """Rows of a table, from `first` up to `end`, under the table's `tensor` in a .safetensors file."""

    first: int
    end: int
    file: str  # below the artifact's root
    sha256: str  # of that file


class ShardedTable(Frozen):
    """A table and where its rows are; together the shards have every row, in their order."""

    name: str
    tensor: str  # its name in the files, which is the checkpoint's without "model."
    rows: int
    width: int
    dtype: str  # of the tensor in the files
    kept_in: TableDtype = Field(
        default=TableDtype.FP32,
        description="What its rows are in. int8: `width` bytes, scale and offset in fp32; int4: half as many "
        "bytes, the first number of two in the low bits, scale and offset in fp16. As fbgemm fuses rows.",
    )
    features: tuple[str, ...]  # that look it up
    shards: tuple[TableRows, ...]


class TablesFile(Frozen):
    """`tables.json`: the tables of a tower."""

    version: Literal[1] = 1
    tower: TowerName
    tables: tuple[ShardedTable, ...]


class LookupReport(Frozen):
    """What was tried on the shards: lookups in them against eager ones, by each rank in its own rows."""

    cases: int  # of every rank together
    refused: int  # of these, inputs that contradict each other
    own_rows: int = Field(
        description="Rows that were also held one by one against the checkpoint's: of each rank's rows of "
        "each table the first, the last, and some between."
    )
    largest_difference: float


class ShardedTables(Frozen):
    """The tables of a tower without a package for them: look up in the shards, then run `TowerEntry.package`.

    What is looked up are its inputs, joined by name: pass them in the order of `tensors`.
    """

    index: FileRef  # a `TablesFile`
    shards: tuple[FileRef, ...]  # one per rank that had rows
    tensors: tuple[TensorEntry, ...]
    dims: tuple[DimEntry, ...]  # that the tensors' shapes name
    verified: LookupReport

    @property
    def all_files(self) -> tuple[FileRef, ...]:
        return (self.index, *self.shards)


class FamilyPackage(Frozen):
    """The installed distribution that a model family of one's own came from."""

    distribution: str
    version: str


class Metric(StrEnum):
    """How an index compares a query and an item; what the model was trained to."""

    COSINE = "cosine"  # by inner product: items have unit length, queries need it too
    INNER_PRODUCT = "inner_product"
    L2 = "l2"


class IndexEntry(Frozen):
    """A FAISS index over all item vectors, and how well it finds them."""

    file: FileRef
    parameters: IndexSpec  # with nothing left open
    metric: Metric
    labels: Literal["item_ids", "row_numbers"]  # what a search returns: ids, or places in the vectors' parts
    trained_rows: int  # a random sample; 0 for kinds that need no training
    recall_at_10: float | None = Field(
        description="Of the 10 items most like an item by exact search, the share that the index finds; "
        "over `queries` random items, the item itself left out, ties found either way. None: too few items."
    )
    queries: int
    seconds: float
    peak_memory_bytes: int  # resident, of the process that built it, which holds all of it


class VectorsEntry(Frozen):
    """The vectors of all items, in the order of the input's rows, checked against eager on a sample."""

    files: tuple[FileRef, ...]  # parquet, to be read in this order
    rows: int
    id_column: str  # the input's, as it was
    id_type: str  # in Arrow's words: "int64", "string", ...
    vector_column: str  # a list of `width` numbers
    width: int
    dtype: str
    output: str  # of the package
    checked_rows: int  # spread at random over the whole input
    tolerance: float  # allowed difference, as a fraction of the output's scale
    largest_difference: float
    scale: float  # largest magnitude of the eager output
    index: IndexEntry | None = None
    seconds: float  # of reading rows, running the package and writing vectors
    rows_per_second: float
    peak_memory_bytes: int = Field(
        description="Largest resident memory while the vectors were made and checked: the peaks of the "
        "tower's process and of the package's, added up."
    )

    @property
    def all_files(self) -> tuple[FileRef, ...]:
        return (*self.files, self.index.file) if self.index else self.files


class TowerEntry(Frozen):
    """One published tower: a package, or a sparse one and a dense one to be run one after the other."""

    name: TowerName
    view: Literal["training", "scalar", "declared"]
    package: FileRef  # of the whole tower; in two_stage of its dense part
    sparse: SparseEntry | None = None  # two_stage only
    tables: ShardedTables | None = None  # two_stage with tables: sharded, in place of `sparse`
    files: tuple[FileRef, ...]  # pipeline.config, and of TorchEasyRec's families fg.json, model_acc.json
    inputs: tuple[TensorEntry, ...]
    outputs: tuple[TensorEntry, ...]
    dims: tuple[DimEntry, ...]
    declaration: TowerDeclaration | None = None  # of a family of one's own: how rows become the inputs
    id_weights: IdWeights | None = None  # what it does with the weights of ids; None: it reads none
    remarks: tuple[str, ...] = ()  # where its answers are not TorchEasyRec's own, in words
    demands: tuple[str, ...] = ()  # a package that refuses "but received n" found the n-th unmet, from 1
    inferred_ops: tuple[InferredOp, ...] = ()
    embeddings: tuple[TableEntry, ...] = ()  # the tables of TorchEasyRec's families
    precision: Precision = Precision.FP32  # other than fp32: by autocast, outputs are fp32 all the same
    tf32: bool = Field(
        default=False,
        description="Products of fp32 matrices may round their factors to TF32, if the server allows it too: "
        "what a package calls of cuBLAS asks the process that runs it.",
    )
    kernel: Kernel = Field(
        default=Kernel.PYTORCH,
        description="What computes its HSTU layers. Triton's kernels are compiled into the package: it needs "
        "nothing beside it to run them.",
    )
    passes: tuple[AppliedPass, ...] = ()  # in the order in which they were applied
    code: Literal["cold", "warm"] = "cold"  # compiled for this export, or taken from the code cache
    reused: Literal["request", "graph"] | None = None  # warm: not traced and not compiled; not compiled
    code_note: str = ""  # why it is cold; what became of an entry of the cache that was wrong
    verified: VerificationReport
    vectors: VectorsEntry | None = None  # of the item tower, where they were asked for
    stage_seconds: dict[str, float]
    trace: TraceTime | None = None  # None: it was not traced, the code of an equal request was reused

    @property
    def served_files(self) -> tuple[FileRef, ...]:
        """What it takes to run the tower, packages first."""
        sparse = (self.sparse.package,) if self.sparse else ()
        tables = self.tables.all_files if self.tables else ()
        return (self.package, *sparse, *tables, *self.files)

    @property
    def all_files(self) -> tuple[FileRef, ...]:
        """Every file of the tower, packages first."""
        return (*self.served_files, *self.vectors.all_files) if self.vectors else self.served_files


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
