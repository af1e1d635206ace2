"""The comparison of two published artifacts, as people read it before they promote one."""

from typing import Literal, Self

from pydantic import Field, model_validator

from exporter.dtypes import TableDtype
from exporter.frozen import Frozen
from exporter.spec import TowerName

DIFF_NAME = "diff.json"  # beside the manifest of the newer artifact
FEWEST_ROUNDS = 10  # of calls in turn, below which their times decide nothing
MOST_CHANGES = 200  # settings, inputs or files that are listed of one kind
MOST_TABLES = 200  # that are listed of a tower
MOST_WEIGHTS = 100
MOST_OUTPUTS = 50
MOST_ROWS = 10  # of a table, the most changed ones
LONGEST_TEXT = 300  # characters of a setting's value, or of its place


class ArtifactRef(Frozen):
    """One of the two artifacts: its place, and the export that made it."""

    uri: str
    job_id: str
    created_at: str
    family: str


class Change(Frozen):
    """A setting, by its place, that one side lacks (None) or has otherwise."""

    place: str
    old: str | None
    new: str | None


class Changes(Frozen):
    """Settings that differ: the first of them, and how many there are."""

    listed: tuple[Change, ...] = ()
    total: int = 0


class Histogram(Frozen):
    """Numbers of values between neighbouring edges, of the old and the new side."""

    edges: tuple[float, ...]
    old: tuple[int, ...] = ()
    new: tuple[int, ...] = ()

    @model_validator(mode="after")
    def _numbers_lie_between_edges(self) -> Self:
        if any(side and len(side) != len(self.edges) - 1 for side in (self.old, self.new)):
            raise ValueError("a histogram has one number less than edges")
        return self


class RowChange(Frozen):
    """A row of a table that changed: its distance from what it was."""

    row: int  # its number, or its id
    distance: float
    old_norm: float
    new_norm: float
    cosine: float


class TableDiff(Frozen):
    """One embedding table, row by row, in fp32 whatever its dtype is."""

    name: str
    path: str
    old_rows: int | None  # None: only the other side has the table
    new_rows: int | None
    old_width: int | None = None
    new_width: int | None = None
    old_dtype: TableDtype | None = None
    new_dtype: TableDtype | None = None
    by_id: bool = False  # rows of equal ids were compared, not rows of equal numbers
    rows_compared: int = 0  # that both sides have
    rows_changed: int = 0  # of those compared
    rows_added: int = 0
    rows_removed: int = 0
    rows_not_finite: int = Field(default=0, description="Compared rows that have a NaN or an infinity.")
    mean_norm_change: float | None = None  # absolute, over the compared rows that are finite
    largest_norm_change: float | None = None
    mean_cosine: float | None = None
    least_cosine: float | None = None
    norms: Histogram | None = None  # of the compared rows
    relative_changes: Histogram | None = Field(
        default=None, description="Distance of each changed row from what it was, as a share of its old norm."
    )
    most_changed: tuple[RowChange, ...] = ()
    note: str = ""

    @property
    def share_changed(self) -> float:
        return self.rows_changed / self.rows_compared if self.rows_compared else 0.0

    @property
    def differs(self) -> bool:
        return (
            self.rows_changed > 0
            or self.old_rows != self.new_rows
            or self.old_width != self.new_width
            or self.old_dtype is not self.new_dtype
        )


class WeightDiff(Frozen):
    """A weight that is no table: how far it moved, as a share of its norm."""

    name: str
    old_shape: tuple[int, ...] | None  # None: only the other side has it
    new_shape: tuple[int, ...] | None
    numbers_changed: int = 0
    relative: float | None = None  # norm of the difference, as a share of the old norm
    largest: float | None = None  # absolute


class Weights(Frozen):
    """All weights but the tables: those that changed most, and how many there are."""

    listed: tuple[WeightDiff, ...] = ()
    total: int = 0
    changed: int = 0


class CodeDiff(Frozen):
    """The compiled code of a tower, file by file, whatever weights lie beside it."""

    same: bool
    same_sources: bool  # the generated sources are equal; only what was built of them may differ
    changed: tuple[str, ...] = ()  # kinds of files that differ
    old_origin: str = ""  # "cold", or "warm" with what was reused
    new_origin: str = ""


class OutputDiff(Frozen):
    """One output of both towers on the same rows."""

    name: str
    rows: int
    width: int = 1  # numbers per row
    rows_changed: int = 0
    rows_not_finite: int = 0  # in either
    mean_difference: float | None = None  # absolute, over all numbers
    largest_difference: float | None = None
    correlation: float | None = None  # of single numbers; None: vectors, or all numbers are equal
    rank_correlation: float | None = None
    mean_cosine: float | None = None  # of vectors
    least_cosine: float | None = None
    shares: tuple[float, ...] = ()  # at which the quantiles are taken
    old_quantiles: tuple[float, ...] = ()
    new_quantiles: tuple[float, ...] = ()
    histogram: Histogram | None = None
    note: str = ""


class Outputs(Frozen):
    """The outputs of a tower on rows, or the reason why there are none."""

    rows_uri: str | None = None
    rows: int = 0
    outputs: tuple[OutputDiff, ...] = ()
    note: str = ""


class VectorsDiff(Frozen):
    """Published vectors of the same items, by their ids."""

    old_items: int
    new_items: int
    compared: int  # items of the new artifact that were looked for in the old one
    found: int
    mean_cosine: float | None = None
    least_cosine: float | None = None
    cosines: Histogram | None = None
    note: str = ""


class LatencyRatio(Frozen):
    """Times of two towers that were called in turn in one process, on the same rows."""

    batch: int  # rows per call
    rounds: int  # calls of each
    old_ms: float  # median
    new_ms: float
    ratio: float  # of the medians, new to old
    low: float  # ends of the interval in which the ratio lies, with `confidence`
    high: float
    confidence: float

    def is_above(self, bound: float) -> bool | None:
        """Return whether the ratio is above `bound`; None if calls are too few, or too unsteady, to tell."""
        if self.rounds < FEWEST_ROUNDS:
            return None
        if self.low > bound:
            return True
        return False if self.high <= bound else None


class LatencyDiff(Frozen):
    """Latency at some batch sizes, or the reason why there is none."""

    ratios: tuple[LatencyRatio, ...] = ()
    note: str = ""


class FileDiff(Frozen):
    """A published file, by its size on either side."""

    path: str
    old_size: int | None
    new_size: int | None


class Sizes(Frozen):
    """Bytes of all files of a tower, and the files that differ."""

    old_bytes: int = 0
    new_bytes: int = 0
    files: tuple[FileDiff, ...] = ()


class TowerDiff(Frozen):
    """One tower of both artifacts."""

    name: TowerName
    only_in: Literal["old", "new"] | None = None  # None: both have it, and the rest says how they differ
    identical: bool = False  # every served file is byte for byte the same; nothing more was compared
    interface: Changes = Changes()  # dims, inputs, outputs, precision and the like
    code: CodeDiff | None = None
    tables: tuple[TableDiff, ...] = ()
    tables_total: int = 0
    tables_changed: int = 0
    weights: Weights = Weights()
    outputs: Outputs | None = None
    vectors: VectorsDiff | None = None
    latency: LatencyDiff | None = None
    sizes: Sizes = Sizes()

    @property
    def differs(self) -> bool:
        """True if anything differs that a server or a caller could notice."""
        if self.identical:
            return False
        code = self.code is not None and not self.code.same
        weights = self.tables_changed or self.weights.changed
        return bool(self.only_in or self.interface.total or code or weights)


class Comparison(Frozen):
    """The content of diff.json: two artifacts side by side."""

    version: Literal[1] = 1
    old: ArtifactRef
    new: ArtifactRef
    same: bool  # nothing differs that is served
    artifact: Changes = Changes()  # machine, versions, sources
    config: Changes = Changes()
    towers: tuple[TowerDiff, ...] = ()
    seconds: float = 0.0

    @property
    def shares_a_tower(self) -> bool:
        """True if a tower is in both, so that their configs were compared."""
        return any(tower.only_in is None for tower in self.towers)
