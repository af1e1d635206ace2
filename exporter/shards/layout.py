"""The results of ranks for a tower's tables, and their paths in the artifact."""

from dataclasses import dataclass

import torch

from exporter.attempt.attempt import TowerResult
from exporter.checkpoint.keymap import ID_MAP_IDS, ID_MAP_ROWS
from exporter.checkpoint.tensors import TensorMeta
from exporter.dtypes import TableDtype
from exporter.lowering.tables import RowErrors
from exporter.manifest import FileRef, LookupReport, SourceRef
from exporter.models.embedding.table_uses import TableUse
from exporter.models.embedding.tables import loses_precision, meta_of_fused_rows
from exporter.outcome import ExportOutcome, Failure
from exporter.spec import TowerName
from exporter.storage.store import StoredFile
from exporter.towers.plan import TowerToExport

TABLES_NAME = "tables.json"


@dataclass(frozen=True, kw_only=True)
class TableShard:
    """The rows of one table that belong to one rank, from `first` up to `end`."""

    table: TableUse
    first: int
    end: int
    kept_in: TableDtype

    @property
    def is_quantised(self) -> bool:
        return loses_precision(self.table.trained, self.kept_in)

    @property
    def meta(self) -> TensorMeta:
        """Shape and dtype of these rows as they are written."""
        rows = TensorMeta(
            shape=(self.end - self.first, *self.table.meta.shape[1:]), dtype=self.table.meta.dtype
        )
        return meta_of_fused_rows(rows, self.kept_in)

    @property
    def id_map_tensors(self) -> dict[str, TensorMeta]:
        """Parts of the table's map of ids that are written beside these rows, by the names of the whole."""
        part = TensorMeta(shape=(self.end - self.first,), dtype=torch.int64)
        names = () if self.table.id_map is None else (ID_MAP_IDS, ID_MAP_ROWS)
        return {f"{self.table.id_map}.{name}": part for name in names}


@dataclass(frozen=True, kw_only=True)
class RankTables:
    """One rank's result for one tower's tables: its rows, written, verified and uploaded, or a failure."""

    tower: TowerName
    rank: int
    plan: str = ""  # digest of the sharding plan that the rank computed
    checkpoint: SourceRef | None = None  # the checkpoint that the rank read
    tables: tuple[TableUse, ...] = ()
    shards: tuple[TableShard, ...] = ()
    errors: tuple[tuple[str, RowErrors], ...] = ()  # of the rank's quantised rows, by `TableUse.weight`
    file: FileRef | None = None  # None: no table has rows for this rank
    report: LookupReport | None = None
    uploaded: StoredFile | None = None
    failure: Failure | None = None
    died: bool = False  # its process died, maybe after it uploaded its file
    upload_failure: Failure | None = None


@dataclass(frozen=True, kw_only=True)
class RankReport:
    """Everything that one rank sends to rank 0 at the end."""

    planned: tuple[TowerToExport, ...] = ()  # of the whole export
    results: tuple[TowerResult, ...] = ()
    tables: tuple[RankTables, ...] = ()
    earlier: ExportOutcome | None = None  # published by an earlier attempt that died before it reported it
    failure: Failure | None = None  # of the rank as a whole

    @property
    def uploaded(self) -> tuple[StoredFile, ...]:
        """All files that the rank has uploaded."""
        tables = (each.uploaded for each in self.tables if each.uploaded is not None)
        return (*tables, *(file for result in self.results for file in result.uploaded))


def rows_path(tower: TowerName, rank: int, ranks: int) -> str:
    """Return the path of a rank's rows, below the artifact's root."""
    return f"tables/{tower}/rows-{rank}-of-{ranks}.safetensors"


def index_path(tower: TowerName) -> str:
    """Return the path of a tower's `tables.json`, below the artifact's root."""
    return f"tables/{tower}/{TABLES_NAME}"
