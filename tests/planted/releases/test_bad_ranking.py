"""Bad releases of a ranking model: each is refused, and the measure that it spoils says so."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from torch import Tensor

from benchmarks.measure.small_world import World, ranker, train
from exporter.reports.release_report import ReleaseReport, Verdict
from tests.planted.releases.conftest import TRAINED_ROWS, Trade, export_model
from tests.planted.releases.variants import Edit, Exported, add_ballast, judge, publish

pytestmark = pytest.mark.planted

_SLOW = 160  # units of the first layer, of 64: about a quarter more time per call of 128 rows

EditRows = Callable[[pa.Table], pa.Table]


def refusing(report: ReleaseReport) -> set[str]:
    """Return the measures that stand against the release."""
    return {each.measure for each in report.findings if each.verdict is Verdict.FAILED}


def in_table(name: str, change: Callable[[Tensor], Tensor]) -> Edit:
    """Return an edit of the weight of this ending, in the packages that hold it."""

    def edit(weights: dict[str, Tensor]) -> None:
        for found in weights:
            if found.endswith(name):
                weights[found].copy_(change(weights[found]))

    return edit


def shuffled(table: Tensor) -> Tensor:
    return table[torch.randperm(len(table), generator=torch.Generator().manual_seed(0))]


def quantised(table: Tensor) -> Tensor:
    """Return a table as int4 keeps it where one number of each row is far from the others."""
    widened = table.clone()
    widened[:, 0] = 16 * table.abs().max()  # the outlier that all steps of a row are made for
    low, high = widened.min(dim=1, keepdim=True).values, widened.max(dim=1, keepdim=True).values
    step = (high - low) / 15
    rounded = torch.round((widened - low) / step) * step + low
    rounded[:, 0] = table[:, 0]
    return rounded


WEIGHTS: dict[str, tuple[Edit, str]] = {
    "shuffled user table": (in_table("user_id_emb.weight", shuffled), "auc"),
    "shuffled item table": (in_table("item_id_emb.weight", shuffled), "auc"),
    "user table of zeros": (in_table("user_id_emb.weight", torch.zeros_like), "auc"),
    "int4 on a hot table": (in_table("item_id_emb.weight", quantised), "auc"),
    "dead tower": (in_table("towers.deep.mlp.0.perceptron.0.weight", torch.zeros_like), "spread"),
    "dead output": (in_table("output_mlp.weight", torch.zeros_like), "spread"),
    "answers turned round": (in_table("output_mlp.weight", torch.neg), "above_chance"),
    "biased answers": (in_table("output_mlp.bias", lambda bias: bias + 0.5), "calibration"),
    "overconfident answers": (in_table("output_mlp.weight", lambda w: 2 * w), "normalized_entropy"),
    "not a number in one row": (
        in_table("item_id_emb.weight", lambda t: t.index_fill(0, torch.tensor([7]), float("nan"))),
        "finite",
    ),
    "rows one too far": (in_table("item_id_emb.weight", lambda table: table.roll(1, 0)), "auc"),
    "half the users new": (
        in_table("user_id_emb.weight", lambda t: t.index_fill(0, torch.arange(0, len(t), 2), 0.0)),
        "auc",
    ),
}


@pytest.mark.parametrize("plant", WEIGHTS)
def test_wrong_weights_are_refused(plant: str, ranking: Trade, tmp_path: Path) -> None:
    edit, measure = WEIGHTS[plant]
    candidate = publish(
        ranking.exported, tmp_path / "bad", ranking.train_on(ranking.exported.state, day=1), edit
    )
    report = judge(candidate, ranking.baseline(), ranking.held_out(1), ranking.exported, tmp_path)
    assert not report.blessed and measure in refusing(report), report
    if measure in ("spread", "finite", "above_chance"):  # told without a baseline
        alone = judge(candidate, None, ranking.held_out(1), ranking.exported, tmp_path)
        assert not alone.blessed and measure in refusing(alone), alone


def unknown_ids(table: pa.Table) -> pa.Table:
    ids = table["item_id"].to_numpy().copy()
    ids[::10] += 100_000
    return table.set_column(table.column_names.index("item_id"), "item_id", pa.array(ids))


def few_items(table: pa.Table) -> pa.Table:
    return table.filter(pa.array(table["item_id"].to_numpy() < 40))


def dearer(table: pa.Table) -> pa.Table:
    price = table["price"].to_numpy() * np.float32(3)
    return table.set_column(table.column_names.index("price"), "price", pa.array(price))


ROWS: dict[str, tuple[EditRows, str]] = {
    "a jump of unknown ids": (unknown_ids, "unknown_ids"),
    "other items are shown": (few_items, "psi"),
    "prices in another currency": (dearer, "psi"),
}


@pytest.mark.parametrize("plant", ROWS)
def test_other_inputs_are_refused(plant: str, ranking: Trade, tmp_path: Path) -> None:
    edit, measure = ROWS[plant]
    rows = tmp_path / "rows.parquet"
    pq.write_table(edit(pq.read_table(ranking.held_out(1))), rows)
    candidate = publish(ranking.exported, tmp_path / "bad", ranking.train_on(ranking.exported.state, day=1))
    report = judge(candidate, ranking.baseline(), str(rows), ranking.exported, tmp_path)
    assert not report.blessed and measure in refusing(report), report


def test_twice_the_size_is_refused(ranking: Trade, tmp_path: Path) -> None:
    candidate = publish(ranking.exported, tmp_path / "bad", ranking.train_on(ranking.exported.state, day=1))
    add_ballast(candidate)
    report = judge(candidate, ranking.baseline(), ranking.held_out(1), ranking.exported, tmp_path)
    assert not report.blessed and refusing(report) == {"size"}, report


def test_a_slower_package_is_refused(ranking: Trade, tmp_path: Path) -> None:
    """A layer twice as wide: the packages are compiled, and the quality is as good."""
    wide, world = ranker(hidden=_SLOW), World.make()
    state = train(wide, world.impressions(TRAINED_ROWS, seed=1), seed=0)
    exported = Exported(artifact=export_model(world, wide, state, tmp_path), state=state, config=wide)
    report = judge(exported.artifact, ranking.baseline(), ranking.held_out(1), exported, tmp_path)
    assert not report.blessed and refusing(report) == {"latency@128"}, report
