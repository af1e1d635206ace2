"""Dims that do not hold after tracing are reported in terms of the declaration: family, tower, inputs."""

from collections.abc import Callable

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from torch import Tensor

from exporter.data.batch import contradicting_batches, trace_inputs, verification_batches
from exporter.data.rows import read_rows
from exporter.declaration import DimDeclaration, InputDeclaration, TowerDeclaration
from exporter.errors import DimsConflict, DimSpecialised, TraceFailed
from exporter.spec import Mode
from exporter.towers.split import split_tower
from exporter.trace.trace_tower import trace_tower
from tests.exporter.families.conftest import Weighted, WeightedFamily, blueprint_of

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def uri(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Rows of up to three ids, each with a weight; one row has none, and one more than are declared."""
    ids = [[1, 2], [], [3], None, [4, 5, 6, 7, 8]]
    weights = [[0.5] * len(row or ()) for row in ids]
    path = tmp_path_factory.mktemp("rows") / "rows.parquet"
    pq.write_table(pa.table({"ids": pa.array(ids, pa.list_(pa.int64())), "w": weights}), path)
    return str(path)


def with_dims_of_their_own() -> WeightedFamily:
    """Ids and weights that are declared to vary by themselves."""
    family = WeightedFamily(Weighted())
    ids, weights, counts = family.declaration.inputs
    family.declaration = TowerDeclaration(
        dims=(*family.declaration.dims, DimDeclaration(name="m", high_per_row=4)),
        inputs=(
            ids,
            weights.model_copy(update={"shape": ("m", 1), "lengths": "others"}),
            counts,
            InputDeclaration(name="others", dtype="int64", shape=("batch",)),
        ),
    )
    return family


class Narrow(Weighted):
    """Adds something for five rows, whatever the batch."""

    def compute(self, embedded: dict[str, Tensor]) -> dict[str, Tensor]:
        return {"total": super().compute(embedded)["total"] + torch.arange(5.0)}


class Untraceable(Weighted):
    """Decides by values."""

    def compute(self, embedded: dict[str, Tensor]) -> dict[str, Tensor]:
        total = super().compute(embedded)["total"]
        return {"total": total if total.sum() > 0 else -total}


@pytest.mark.parametrize(
    ("family", "error", "words"),
    [
        (with_dims_of_their_own, DimsConflict, ("n, the size of ids", "m, the size of weights")),
        (lambda: WeightedFamily(Narrow()), DimSpecialised, ("dim batch of counts",)),
        (lambda: WeightedFamily(Untraceable()), TraceFailed, ()),
    ],
)
def test_the_error_names_family_tower_and_inputs(
    uri: str, family: Callable[[], WeightedFamily], error: type[Exception], words: tuple[str, ...]
) -> None:
    tower = blueprint_of(family()).build()
    rows = read_rows(uri, tower.config.pipeline.features)
    with pytest.raises(error) as raised:
        trace_tower(tower, trace_inputs(rows, tower.plan), CPU)
    for word in ("model tower of family weighted: ", *words):
        assert word in str(raised.value)


@pytest.mark.parametrize("mode", Mode)
def test_a_sound_tower_is_traced_whole_and_in_two(uri: str, mode: Mode) -> None:
    tower = blueprint_of(WeightedFamily(Weighted()), mode).build()
    inputs = trace_inputs(read_rows(uri, tower.config.pipeline.features), tower.plan)
    parts = (tower,) if mode is Mode.UNIFIED else split_tower(tower, max_batch_size=16)
    for part in parts:
        outputs = part.module(inputs)
        torch.testing.assert_close(trace_tower(part, inputs, CPU).module()(inputs), outputs)
        inputs = outputs


def test_every_verified_batch_keeps_to_the_declared_bounds(uri: str) -> None:
    tower = blueprint_of(WeightedFamily(Weighted())).build()
    batches = verification_batches(read_rows(uri, tower.config.pipeline.features), tower.plan)
    sizes = {batch.name: (len(batch.inputs["counts"]), len(batch.inputs["ids"])) for batch in batches}
    assert sizes["batch_1"] == (1, 2)
    assert sizes["batch_16"] == (16, 3 * 8 + 2)
    assert sizes["all_histories_empty"] == (3, 0)
    assert sizes["full_history"] == (1, 5)  # as a row has, and one more than is declared


def test_contradictions_of_the_declared_inputs_are_found_by_it(uri: str) -> None:
    tower = blueprint_of(WeightedFamily(Weighted())).build()
    rows = read_rows(uri, tower.config.pipeline.features)
    names = {batch.name for batch in contradicting_batches(rows, tower.plan)}
    assert names == {"lengths_exceed_values:ids", "one_event_short:w"}
