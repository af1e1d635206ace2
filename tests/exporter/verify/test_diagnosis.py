"""A failing package is told by what is wrong with it, where that is one of the usual faults."""

from pathlib import Path

import torch

from exporter.data.rows import NamedBatch
from exporter.towers.tower import Tower
from exporter.verify.diagnosis import diagnose
from exporter.verify.reload import Link
from tests.exporter.verify.conftest import batch, mean_price_tower
from tests.exporter.verify.test_gate import runnable_of


def told(chain: list[Link], scratch: Path, tower: Tower, *failed: NamedBatch) -> str:
    return diagnose(runnable_of(tower, chain, scratch), failed)


def with_another_row(row: int) -> Tower:
    """The tower that the package was compiled from, but for one row of its table."""
    tower = mean_price_tower()
    with torch.no_grad():
        tower.module.get_parameter("table.weight")[row] += 1
    return tower


def test_the_id_of_all_wrong_rows_is_named(chain: list[Link], tmp_path: Path) -> None:
    rows = batch("batch_60", *range(6), *[3, 1, 2] * 18)
    wrong = int(rows.inputs["clicks.values"].mode().values)
    said = told(chain, tmp_path, with_another_row(wrong), rows)
    assert f"all wrong rows have id {wrong} of input clicks.values, and no other row has it" in said


def test_the_fewest_rows_that_fail_are_named(chain: list[Link], tmp_path: Path) -> None:
    rows = batch("batch_9", 3, 0, 1, 4, 2, 5, 2, 2, 3)
    ids = rows.inputs["clicks.values"]
    last = int(ids[-1])
    ids[ids[:-1].eq(last).nonzero().flatten()] = (last + 1) % 50
    said = told(chain, tmp_path, with_another_row(last), rows)
    assert "the smallest that fails: seq_clicks=22, batch=9, and passes with 8 rows of it" in said


def test_a_fault_that_is_none_of_the_usual_is_told_by_its_sizes_only(
    chain: list[Link], tmp_path: Path
) -> None:
    said = told(chain, tmp_path, mean_price_tower(seed=1), batch("one_row", 3))
    assert said == "the smallest that fails: seq_clicks=3, batch=1"
