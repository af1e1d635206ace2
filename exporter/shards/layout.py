"""What ranks make of a tower's tables, and where it goes in the artifact."""

from dataclasses import dataclass

from exporter.attempt.attempt import TowerResult
from exporter.checkpoint.tensors import TensorMeta
from exporter.dtypes import TableDtype
from exporter.lowering.tables import RowErrors
from exporter.manifest import FileRef, LookupReport, SourceRef
from exporter.models.embedding.table_uses import TableUse
from exporter.models.embedding.tables import meta_of_fused_rows
from exporter.outcome import ExportOutcome, Failure
from exporter.spec import TowerName
from exporter.storage.store import StoredFile
from exporter.towers.plan import TowerToExport

TABLES_NAME = "tables.json"


@dataclass(frozen=True, kw_only=True)
class TableShard:
    """Rows of a table that are one rank's."""

    table: TableUse
    first: int
    end: int
    kept_in: TableDtype = TableDtype.FP32

    @property
    def is_quantised(self) -> bool:
        return self.kept_in is not TableDtype.FP32

    @property
    def meta(self) -> TensorMeta:
        """Of these rows, as they are written."""
        rows = TensorMeta(
            shape=(self.end - self.first, *self.table.meta.shape[1:]), dtype=self.table.meta.dtype
        )
        return meta_of_fused_rows(rows, self.kept_in)


@dataclass(frozen=True, kw_only=True)
class RankTables:
    """What one rank made of the tables of one tower: its rows, written, tried and sent, or a failure."""

    tower: TowerName
    rank: int
    plan: str = ""  # the digest of the sharding plan that it made for itself
    checkpoint: SourceRef | None = None  # that it read
    tables: tuple[TableUse, ...] = ()
    shares: tuple[TableShard, ...] = ()
    errors: tuple[tuple[str, RowErrors], ...] = ()  # of its rows of quantised tables, by `TableUse.weight`
    file: FileRef | None = None  # None: no table has rows for this rank
    report: LookupReport | None = None
    sent: StoredFile | None = None
    failure: Failure | None = None
    died: bool = False  # and could not say whether it had sent its file
    unsent: Failure | None = None  # why the file is not where the artifact is to be


@dataclass(frozen=True, kw_only=True)
class RankReport:
    """All that one rank brings to where the ranks meet."""

    planned: tuple[TowerToExport, ...] = ()  # of the whole export
    results: tuple[TowerResult, ...] = ()
    tables: tuple[RankTables, ...] = ()
    earlier: ExportOutcome | None = None  # what an attempt published that could not say so
    failure: Failure | None = None  # of the rank as a whole

    @property
    def sent(self) -> tuple[StoredFile, ...]:
        """Every file of it that is where the artifact is to be."""
        tables = (each.sent for each in self.tables if each.sent is not None)
        return (*tables, *(file for result in self.results for file in result.sent))


def rows_path(tower: TowerName, rank: int, ranks: int) -> str:
    """Of a rank's rows, below the artifact's root."""
    return f"tables/{tower}/rows-{rank}-of-{ranks}.safetensors"


def index_path(tower: TowerName) -> str:
    """Of a tower's `tables.json`, below the artifact's root."""
    return f"tables/{tower}/{TABLES_NAME}"
