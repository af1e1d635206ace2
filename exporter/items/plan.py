"""What is asked for beside the item package, found possible before anything is compiled."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from exporter.config.schema import Feature
from exporter.data.parquet import ParquetSource, open_parquet
from exporter.dims.plan import BATCH, DimPlan
from exporter.errors import InvalidSpec
from exporter.index_spec import IndexSpec
from exporter.items.ids import ItemIds, check_ids
from exporter.items.index import require_faiss
from exporter.items.index_plan import metric_of, resolve_index
from exporter.manifest import Metric, TensorEntry
from exporter.spec import ExportSpec
from exporter.towers.plan import PlannedTower


@dataclass(frozen=True, kw_only=True)
class Items:
    """All items of an export, their ids checked."""

    source: ParquetSource
    ids: ItemIds
    features: tuple[Feature, ...]
    plan: DimPlan
    index: IndexSpec | None
    metric: Metric


@dataclass(frozen=True, kw_only=True)
class VectorsPlan:
    """The vectors that a traced item tower will make of them, and the index, with nothing left open."""

    items: Items
    output: str  # the package's
    width: int
    index: IndexSpec | None


def open_items(planned: PlannedTower, spec: ExportSpec, scratch: Path) -> Items | None:
    """Every item of the input; None where no vectors are wanted.

    Raises:
        InvalidSpec: an index is wanted, and there is no FAISS here.
        InvalidRows: an id is missing, cannot be one, or comes twice.
    """
    if planned.item_id_column is None:
        return None
    if spec.item_index is not None:
        require_faiss()
    assert spec.item_input_uri is not None, "plan_export refuses an item tower without it"
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
    """What the tower's outputs make of the items.

    Raises:
        InvalidSpec: it does not give one vector per item, or the index does not fit them.
    """
    shapes = ", ".join(f"{output.name} {output.dtype} {list(output.shape)}" for output in outputs)
    match [(output.name, output.dtype, output.shape) for output in outputs]:
        case [(str(name), "float32", (dim, int(width)))] if dim == BATCH:
            index = items.index and resolve_index(items.index, rows=items.ids.rows, width=width)
            return VectorsPlan(items=items, output=name, width=width, index=index)
    raise InvalidSpec(
        f"the item tower does not return one vector per item, but {shapes}",
        hint="leave materialise_items out",
        where="materialise_items",
    )
