"""Faults that sample rows never meet are met by the cases of every recorded tower.

A fault is planted into eager itself: rows beyond a number of values or events that are read in part, a row of
a table that is another. The gate's cases are run in turn until one differs.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache, partial

import pytest
import torch
from torch import Tensor

from exporter.config.schema import Feature
from exporter.data.rows import NamedBatch, group_by_sequence, read_rows
from exporter.dims.plan import plan_dims
from exporter.models.embedding.id_map import IdMap
from exporter.models.embedding.table_uses import known_ids, list_tables
from exporter.towers.tower import Tower
from exporter.verify.cases import make_cases
from exporter.verify.numerics import FP32_TOLERANCE, compare, measure_scales
from tests.exporter.models.recorded import MODELS, Batch, recorded_parts, recorded_tower, rows_of, tower_of

LARGEST = 64  # rows of a batch
STRETCHED = ("low_counts", "middle_counts", "high_counts", "full_batch")
VALUES = (3, 11, 32, 1000)  # per row, or per event, beyond which a planted fault begins
EVENTS = (0, 1, 4, 8, 11, 16, 31, 64)
TOWERS = [(model, part) for model in MODELS for part in recorded_parts(model)]


@dataclass
class Tried:
    """A recorded tower with the gate's stretched cases, and what eager gives in them."""

    tower: Tower
    features: Sequence[Feature]
    cases: dict[str, NamedBatch]
    usual: dict[str, float]

    def __post_init__(self) -> None:
        self.cases = {name: self.cases[name] for name in STRETCHED if name in self.cases}
        with torch.no_grad():
            self._expected = {name: self.tower.module(case.inputs) for name, case in self.cases.items()}

    def finds(self, wrong: Callable[[Batch], Batch | None]) -> bool:
        """Return whether a case differs where inputs are changed as `wrong` does; None is no change."""
        changed = ((name, wrong(case.inputs)) for name, case in self.cases.items())
        return any(inputs is not None and self.differs(name, inputs) for name, inputs in changed)

    def differs(self, name: str, inputs: Batch) -> bool:
        with torch.no_grad():
            actual = self.tower.module(inputs)
        return not compare(self._expected[name], actual, usual=self.usual).within(FP32_TOLERANCE)


@cache
def tried(model: str, part: str) -> Tried:
    tower = recorded_tower(model, tower_of(part))
    features = tower.config.pipeline.features
    rows = rows_of(model)
    rows = rows.with_name("items.parquet") if tower.config.name.reads_items else rows
    sample = replace(read_rows(str(rows), features), known_ids=known_ids(tower.module))
    cases = {
        case.name: case for case in make_cases(sample, plan_dims(features, max_batch_size=LARGEST)).must_agree
    }
    with torch.no_grad():
        usual = measure_scales(tower.module(cases[f"batch_{LARGEST}"].inputs))
    return Tried(tower=tower, features=features, cases=cases, usual=usual)


def read_in_part(counts: Tensor, most: int) -> tuple[Tensor, Tensor]:
    """Return wrong counts, at most 1 for groups of more than `most`, and which of the counted are left."""
    wrong = torch.where(counts > most, min(most, 1), counts)
    starts = torch.repeat_interleave(counts.cumsum(0) - counts, counts)
    return wrong, torch.arange(len(starts)) - starts < torch.repeat_interleave(wrong, counts)


def misread_values(inputs: Batch, feature: str, most: int) -> Batch | None:
    """Return the inputs with one value in rows or events of more than `most`; None if there are none."""
    counts = f"{feature}.key_lengths" if f"{feature}.key_lengths" in inputs else f"{feature}.lengths"
    if not bool((inputs[counts] > most).any()):
        return None
    wrong, left = read_in_part(inputs[counts], most)
    flat = {
        name: inputs[name][left] for name in (f"{feature}.values", f"{feature}.weights") if name in inputs
    }
    return {**inputs, counts: wrong, **flat}


def misread_events(inputs: Batch, siblings: Sequence[Feature], most: int) -> Batch | None:
    """Return the inputs with one event in rows of more than `most`; None if there are none."""
    changed = dict(inputs)
    for name in (feature.name for feature in siblings):
        lengths = inputs[f"{name}.lengths"]
        if not bool((lengths > most).any()):
            return None
        wrong, left = read_in_part(lengths.long(), most)
        changed[f"{name}.lengths"] = wrong.to(lengths.dtype)
        if (per_event := inputs.get(f"{name}.key_lengths")) is not None:
            changed[f"{name}.key_lengths"] = per_event[left]
            left = torch.repeat_interleave(left, per_event)
        changed[f"{name}.values"] = inputs[f"{name}.values"][left]
    return changed


def lengths_below(feature: Feature) -> tuple[int, ...]:
    """Return lengths shorter than the declared one of the feature's sequence, the longest of them too."""
    assert feature.sequence is not None
    declared = feature.sequence.length
    return (*(each for each in EVENTS if each < declared - 1), declared - 1)


@contextmanager
def other_row(weight: Tensor, row: int) -> Iterator[None]:
    kept = weight[row].clone()
    noise = torch.randn(kept.shape, generator=torch.Generator().manual_seed(row))
    with torch.no_grad():
        weight[row] += (noise * (1 + weight.abs().max())).to(weight.dtype)
        yield
        weight[row] = kept


@pytest.mark.parametrize(("model", "part"), TOWERS)
def test_rows_and_events_of_many_values_that_are_misread_are_found(model: str, part: str) -> None:
    case = tried(model, part)
    multivalued = [feature for feature in case.features if feature.is_multivalued]
    missed = [
        (feature.name, most)
        for feature in multivalued
        for most in VALUES
        if not feature.value_dim or most < feature.value_dim
        if not case.finds(partial(misread_values, feature=feature.name, most=most))
    ]
    assert not missed


@pytest.mark.parametrize(("model", "part"), TOWERS)
def test_rows_of_many_events_that_are_misread_are_found(model: str, part: str) -> None:
    case = tried(model, part)
    sequences = group_by_sequence([feature for feature in case.features if feature.is_sequence])
    missed = [
        (name, most)
        for name, siblings in sequences.items()
        for most in lengths_below(siblings[0])
        if not case.finds(partial(misread_events, siblings=siblings, most=most))
    ]
    assert not missed


@pytest.mark.parametrize(("model", "part"), TOWERS)
def test_another_first_or_last_row_of_any_table_is_found(model: str, part: str) -> None:
    case = tried(model, part)
    missed = []
    for table in list_tables(case.tower.module):
        weight = case.tower.module.get_parameter(table.weight)
        rows = {0, len(weight) - 1}
        if table.id_map is not None:  # the lowest and highest row of its ids, and that of all others
            id_map = case.tower.module.get_submodule(table.id_map)
            assert isinstance(id_map, IdMap)
            lowest, *_, highest = id_map(id_map.sample_ids(1)).tolist()
            rows = {lowest, highest, len(weight) - 1}
        for row in rows:
            with other_row(weight, row):
                if not case.finds(lambda inputs: inputs):
                    missed.append((table.name, row))
    assert not missed
