"""Decide every parameter of an index over the item vectors. Pure data: no FAISS here."""

import math
from typing import Protocol, runtime_checkable

from exporter.config.blocks.match_towers import Similarity
from exporter.config.family import FamilyConfig
from exporter.errors import InvalidSpec
from exporter.manifest import Metric
from exporter.options.index_spec import FlatIndex, HnswIndex, IndexSpec, IvfFlatIndex, IvfPqIndex

ROWS_PER_LIST = 39  # FAISS warns below this number of training vectors per list
_MOST_LISTS = 65_536
PQ_CODES = 256  # values of a code byte; training needs at least as many vectors

_METRICS = {
    Similarity.COSINE: Metric.COSINE,
    Similarity.INNER_PRODUCT: Metric.INNER_PRODUCT,
    Similarity.EUCLID: Metric.INNER_PRODUCT,  # TorchEasyRec trains it by the inner product too
}


@runtime_checkable
class HasSimilarity(Protocol):
    """A model config with a similarity of user and item vectors."""

    @property
    def similarity(self) -> Similarity: ...


def metric_of(model: FamilyConfig) -> Metric:
    """Return the metric the model was trained with; inner product if its config names none."""
    return _METRICS[model.similarity] if isinstance(model, HasSimilarity) else Metric.INNER_PRODUCT


def resolve_index(index: IndexSpec, *, rows: int, width: int) -> IndexSpec:
    """Return the index with every parameter set, for `rows` vectors of `width` numbers.

    Raises:
        InvalidSpec: there are too few vectors, or `width` is not divisible by the parameter m.
    """
    match index:
        case FlatIndex() | HnswIndex():
            return index
        case IvfFlatIndex():
            return index.model_copy(update=_lists(index, rows))
        case IvfPqIndex():
            if rows < PQ_CODES:
                raise InvalidSpec(
                    f"an index of kind ivf_pq needs at least {PQ_CODES} items, and there are {rows}",
                    hint="ask for kind flat",
                    where="item_index.kind",
                )
            return index.model_copy(update={**_lists(index, rows), "m": _code_bytes(index.m, width)})


def _lists(index: IvfFlatIndex | IvfPqIndex, rows: int) -> dict[str, int]:
    if index.nlist is not None and index.nlist > rows:
        raise InvalidSpec(
            f"an index of {index.nlist} lists needs at least as many items, and there are {rows}",
            hint="leave nlist out, or ask for kind flat",
            where="item_index.nlist",
        )
    fitting = max(1, min(int(4 * math.sqrt(rows)), rows // ROWS_PER_LIST, _MOST_LISTS))
    nlist = index.nlist or fitting
    return {"nlist": nlist, "nprobe": min(index.nprobe, nlist)}


def _code_bytes(asked: int | None, width: int) -> int:
    divisors = [number for number in range(1, width + 1) if width % number == 0]
    if asked is None:
        return max(number for number in divisors if number <= max(1, width // 2))
    if asked not in divisors:
        raise InvalidSpec(
            f"vectors of width {width} cannot be cut into {asked} equal pieces",
            hint=f"m may be {', '.join(str(number) for number in divisors)}",
            where="item_index.m",
        )
    return asked
