"""Plan the item vectors and the index, and refuse impossible requests before anything is compiled."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from exporter.config.schema import Feature
from exporter.data.parquet import ParquetSource, open_parquet
from exporter.dims.plan import BATCH, DimPlan
from exporter.errors import InvalidSpec
from exporter.items.ids import ItemIds, check_ids
from exporter.items.index import require_faiss
from exporter.items.index_plan import metric_of, resolve_index
from exporter.manifest import Metric, TensorEntry
from exporter.options.index_spec import IndexSpec
from exporter.spec import ExportSpec
from exporter.towers.plan import PlannedTower


@dataclass(frozen=True, kw_only=True)
class Items:
    """All items of an export, with checked ids."""

    source: ParquetSource
    ids: ItemIds
    features: tuple[Feature, ...]
    plan: DimPlan
    index: IndexSpec | None
    metric: Metric


@dataclass(frozen=True, kw_only=True)
class VectorsPlan:
    """The vectors that a traced tower computes for the items, and the index with every parameter set."""

    items: Items
    output: str  # name of the package's output
    width: int
    index: IndexSpec | None


def open_items(planned: PlannedTower, spec: ExportSpec, scratch: Path) -> Items | None:
    """Open the item rows and check their ids; return None if the export does not ask for vectors.

    Raises:
        InvalidSpec: the export asks for an index, and FAISS is not installed.
        InvalidRows: an id is missing, neither an integer nor text, or occurs twice.
    """
    if planned.item_id_column is None:
        return None
    if spec.item_index is not None:
        require_faiss()
    assert spec.item_input_uri is not None, "plan_export refuses a tower of items without it"
    source = open_parquet(spec.item_input_uri)
    return Items(
        source=source,
        ids=check_ids(source, planned.item_id_column, scratch=scratch),
        features=planned.config.pipeline.features,
        plan=planned.plan,
        index=spec.item_index,
        metric=metric_of(planned.config.pipeline.model),
    )


def plan_vectors(items: Items, outputs: Sequence[TensorEntry]) -> VectorsPlan:
    """Plan the vectors that the tower computes, given its outputs.

    Raises:
        InvalidSpec: the tower does not return one vector per item, or the index does not fit the vectors.
    """
    shapes = ", ".join(f"{output.name} {output.dtype} {list(output.shape)}" for output in outputs)
    match [(output.name, output.dtype, output.shape) for output in outputs]:
        case [(str(name), "float32", (dim, int(width)))] if dim == BATCH:
            index = items.index and resolve_index(items.index, rows=items.ids.rows, width=width)
            return VectorsPlan(items=items, output=name, width=width, index=index)
    raise InvalidSpec(
        f"the tower does not return one vector per item, but {shapes}",
        hint="leave materialise_items out",
        where="materialise_items",
    )
