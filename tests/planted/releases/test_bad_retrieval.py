"""Bad releases of a retrieval model: each is refused, and the measure that it spoils says so."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from benchmarks.measure.small_world import ITEMS, State, item_vectors, train
from tests.planted.releases.conftest import Trade
from tests.planted.releases.test_bad_ranking import in_table, quantised, refusing, shuffled
from tests.planted.releases.variants import Edit, judge, publish, write_items

pytestmark = pytest.mark.planted


def swap_towers(weights: dict[str, Tensor]) -> None:
    """Give each tower the layers of the other, where both are in these weights; else none of them fit."""
    for name in list(weights):
        other = name.replace("user_tower.mlp", "item_tower.mlp")
        if other != name and other in weights:
            kept = weights[name].clone()
            weights[name].copy_(weights[other])
            weights[other].copy_(kept)


WEIGHTS: dict[str, tuple[Edit, str]] = {
    "shuffled users": (in_table("user_id_emb.weight", shuffled), "hit_rate@10"),
    "dead user tower": (in_table("user_tower.output.weight", torch.zeros_like), "spread"),
    "int4 on the hot item table": (in_table("item_id_emb.weight", quantised), "hit_rate@10"),
    "users turned round": (in_table("user_tower.output.weight", torch.neg), "above_chance"),
}


@pytest.mark.parametrize("plant", WEIGHTS)
def test_wrong_weights_are_refused(plant: str, retrieval: Trade, tmp_path: Path) -> None:
    edit, measure = WEIGHTS[plant]
    state = retrieval.train_on(retrieval.exported.state, day=1)
    candidate = publish(retrieval.exported, tmp_path / "bad", state, edit)
    report = judge(candidate, retrieval.baseline(), retrieval.held_out(1), retrieval.exported, tmp_path)
    assert not report.blessed and measure in refusing(report), report


def test_swapped_towers_are_refused(retrieval: Trade, tmp_path: Path) -> None:
    state = {name: value.clone() for name, value in retrieval.exported.state.items()}
    swap_towers(state)
    candidate = publish(retrieval.exported, tmp_path / "bad", state)
    report = judge(candidate, retrieval.baseline(), retrieval.held_out(1), retrieval.exported, tmp_path)
    assert not report.blessed and "hit_rate@10" in refusing(report), report


Plant = Callable[[Path, State, State], None]


def stale_vectors(artifact: Path, _state: State, other: State) -> None:
    """Publish the item vectors of another training run."""
    write_items(artifact, item_vectors(other))


def vectors_one_too_far(artifact: Path, state: State, _other: State) -> None:
    write_items(artifact, np.roll(item_vectors(state), 1, axis=0))


def half_the_items(artifact: Path, state: State, _other: State) -> None:
    write_items(artifact, item_vectors(state)[::2].copy(), np.arange(0, ITEMS, 2))


ITEM_PLANTS: tuple[Plant, ...] = (stale_vectors, vectors_one_too_far, half_the_items)


@pytest.mark.parametrize("plant", ITEM_PLANTS, ids=lambda plant: str(plant.__name__))
def test_wrong_items_are_refused(plant: Plant, retrieval: Trade, tmp_path: Path) -> None:
    state = retrieval.train_on(retrieval.exported.state, day=1)
    choices = retrieval.world.choices(150_000, seed=5)
    other = train(retrieval.exported.config, choices, seed=9, steps=300)
    candidate = publish(retrieval.exported, tmp_path / "bad", state)
    plant(candidate, state, other)
    report = judge(candidate, retrieval.baseline(), retrieval.held_out(1), retrieval.exported, tmp_path)
    assert not report.blessed and "hit_rate@10" in refusing(report), report
