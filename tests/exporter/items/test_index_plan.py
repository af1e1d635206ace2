"""Parameters that are left open follow the items; impossible ones are refused by name."""

import pytest

from exporter.config.parse import parse_pipeline_config
from exporter.errors import InvalidSpec
from exporter.items.index_plan import metric_of, resolve_index
from exporter.manifest import Metric
from exporter.options.index_spec import FlatIndex, HnswIndex, IvfFlatIndex, IvfPqIndex
from tests.exporter.towers.test_plan import FIXTURES


@pytest.mark.parametrize(
    ("model", "metric"),
    [
        ("hstu_match", Metric.COSINE),
        ("hstu_match_desc", Metric.INNER_PRODUCT),
        ("dlrm_hstu", Metric.INNER_PRODUCT),
    ],
)
def test_an_index_compares_as_training_did(model: str, metric: Metric) -> None:
    config = parse_pipeline_config((FIXTURES / model / "pipeline.config").read_text())
    assert metric_of(config.model) is metric


@pytest.mark.parametrize("index", [FlatIndex(), HnswIndex(m=16)])
def test_some_kinds_leave_nothing_open(index: FlatIndex | HnswIndex) -> None:
    assert resolve_index(index, rows=1, width=7) == index


@pytest.mark.parametrize(
    ("rows", "nlist"), [(1, 1), (100, 2), (10_000, 256), (10**7, 12_649), (10**12, 65_536)]
)
def test_lists_grow_with_the_items(rows: int, nlist: int) -> None:
    index = resolve_index(IvfFlatIndex(), rows=rows, width=32)
    assert index == IvfFlatIndex(nlist=nlist, nprobe=min(32, nlist))


@pytest.mark.parametrize(("width", "m"), [(64, 32), (24, 12), (15, 5), (7, 1), (1, 1)])
def test_codes_are_half_as_many_bytes_as_numbers_if_that_divides_them(width: int, m: int) -> None:
    index = resolve_index(IvfPqIndex(nlist=4), rows=1000, width=width)
    assert index == IvfPqIndex(nlist=4, nprobe=4, m=m)


@pytest.mark.parametrize(
    ("index", "rows", "where"),
    [
        (IvfFlatIndex(nlist=200), 199, "item_index.nlist"),
        (IvfPqIndex(), 255, "item_index.kind"),
        (IvfPqIndex(m=5), 1000, "item_index.m"),
    ],
)
def test_what_does_not_fit_the_items_is_refused(
    index: IvfFlatIndex | IvfPqIndex, rows: int, where: str
) -> None:
    with pytest.raises(InvalidSpec) as raised:
        resolve_index(index, rows=rows, width=32)
    assert raised.value.where == where
