"""What eager refuses; test_export.py holds the compiled package to the same."""

import pytest
import torch

from tests.exporter.models.recorded import random_inputs, recorded_tower

CONTRADICTIONS = [
    (
        {"uih_seq__watch_time.lengths": [4, 3]},
        "uih_seq__watch_time.lengths differs from uih_seq__video_id.lengths",
    ),
    ({"user_id.lengths": [1, 2]}, "user_id.lengths .* does not add up"),
    ({"user_id.lengths": [-1, 3]}, "user_id.lengths has a negative length"),
    ({"user_id.values": [1, 500]}, "user_id.values has an id outside the 500 rows of table user_id_emb"),
    (
        {"uih_seq__video_id.values": [1, 2, 3, 4, 5, 6, -1]},
        "uih_seq__video_id.values has an id outside the 2000",
    ),
]


@pytest.mark.parametrize(("changes", "message"), CONTRADICTIONS, ids=lambda value: str(value)[:40])
def test_contradicting_inputs_are_refused_by_name(changes: dict[str, list[int]], message: str) -> None:
    tower = recorded_tower("hstu_match", "user")
    inputs = random_inputs(tower, [3, 4])
    inputs |= {name: torch.tensor(values, dtype=inputs[name].dtype) for name, values in changes.items()}
    with pytest.raises(RuntimeError, match=message):
        tower.module(inputs)


def test_lengths_cannot_overflow_into_the_right_sum() -> None:
    tower = recorded_tower("hstu_match", "user")
    inputs = random_inputs(tower, [3, 4, 0])
    largest = torch.iinfo(torch.int64).max
    inputs["user_id.lengths"] = torch.tensor([largest, largest, 5])
    assert inputs["user_id.lengths"].sum() == 3
    with pytest.raises(RuntimeError, match="user_id.lengths .* does not add up"):
        tower.module(inputs)


def test_history_lengths_must_add_up_to_the_history() -> None:
    tower = recorded_tower("hstu_match", "user")
    inputs = random_inputs(tower, [3, 4])
    inputs |= {
        name: tensor - 1 for name, tensor in inputs.items() if name.startswith("uih_") and "lengths" in name
    }
    with pytest.raises(RuntimeError, match="uih_seq__video_id.lengths .* does not add up"):
        tower.module(inputs)
