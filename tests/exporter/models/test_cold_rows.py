"""Rows with nothing in them get finite outputs from every recorded model, alone and all together."""

import numpy as np
import pytest
import torch

from exporter.data.rows import Rows, read_rows
from exporter.towers.tower import Tower
from tests.exporter.models.recorded import MODELS, recorded_parts, recorded_tower, rows_of, tower_of

TOWERS = [(model, part) for model in MODELS for part in recorded_parts(model)]


def cold_rows(model: str, tower: Tower, count: int) -> Rows:
    """The first rows of the model's own, without any history and without values where there may be none."""
    file = rows_of(model)
    if tower.config.name.reads_items:
        file = file.with_name("items.parquet")
    rows = read_rows(str(file), tower.config.pipeline.features, limit=count).without_history()
    return rows.resize(rows.multivalued, np.zeros(count, dtype=np.int64))


@pytest.mark.parametrize(("model", "part"), TOWERS)
def test_a_cold_row_has_the_same_finite_outputs_alone_and_among_others(model: str, part: str) -> None:
    tower = recorded_tower(model, tower_of(part))
    with torch.no_grad():
        alone, among = (tower.module(cold_rows(model, tower, count).tensors(tower.plan)) for count in (1, 3))
    for name, outputs in among.items():
        assert bool(outputs.isfinite().all()), name
        torch.testing.assert_close(alone[name], outputs[: len(alone[name])], rtol=1e-4, atol=1e-5)
