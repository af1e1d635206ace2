"""Batches in the place of the largest one: as many rows, or rows as long, with a share of its events."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from torch import Tensor

from exporter.config.schema import Feature
from exporter.data.lighter import lighter_batches
from exporter.data.rows import Rows, read_rows
from exporter.dims.plan import BATCH, plan_dims
from exporter.dims.sizes import sizes_of

_LARGEST = 64


@pytest.fixture(scope="module")
def rows(fixtures: Path, user_features: tuple[Feature, ...]) -> Rows:
    return read_rows(str(fixtures / "data" / "ref_b32.parquet"), user_features)


def count_events(inputs: Mapping[str, Tensor]) -> int:
    return sum(int(value.sum()) for name, value in inputs.items() if "_seq__" in name and "lengths" in name)


@pytest.mark.parametrize("share", [0.9, 0.6, 0.1, 0.0])  # of each of the two
def test_the_largest_batch_is_met_with_shorter_histories_and_whole_rows_in_fewer(
    rows: Rows, share: float
) -> None:
    plan = plan_dims(rows.features, max_batch_size=_LARGEST)
    whole = count_events(rows.take(_LARGEST).tensors(plan))
    *fewer, many = lighter_batches(rows, plan, 2 * share)
    assert many.name == f"batch_{_LARGEST}"
    sizes = sizes_of(plan, {name: tuple(value.shape) for name, value in many.inputs.items()})
    assert sizes[BATCH] == _LARGEST
    lengths = many.inputs["uih_seq__video_id.lengths"]
    assert count_events(many.inputs) <= max(share * whole, _LARGEST * len(rows.sequences))
    assert f"histories of at most {int(lengths.max())} events" in many.note
    assert [each.name for each in fewer] == [f"batch_{int(share * _LARGEST)}"] * (share > 0.5)
    if fewer:
        uncut = rows.take(int(share * _LARGEST)).tensors(plan)
        assert all(fewer[0].inputs[name].equal(value) for name, value in uncut.items())


def test_rows_without_sequences_are_not_cut(rows: Rows) -> None:
    alone = [feature for feature in rows.features if not feature.is_sequence]
    plan = plan_dims(tuple(alone), max_batch_size=_LARGEST)
    columns = {feature.name: rows.columns[feature.name] for feature in alone}
    assert list(lighter_batches(replace(rows, features=tuple(alone), columns=columns), plan, 0.1)) == []
