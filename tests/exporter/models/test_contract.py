"""What eager refuses; test_export.py holds the compiled package to the same."""

from dataclasses import replace

import pytest
import torch

from exporter.config.features.joined_sequences import join_sequences
from exporter.config.schema import Feature, FeatureGroup, FeatureKind, GroupKind, Sequence, TableConfig
from exporter.models.contract import check_inputs
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


_TAGS = Feature(
    name="tags",
    bare_name="tags",
    kind=FeatureKind.ID,
    sequence=Sequence(name="clicks", length=4, delim=";"),
    table=TableConfig(name="tags_emb", rows=9, dim=2),
    value_dim=0,
)
_TAG_INPUTS = {
    "tags.values": torch.tensor([1, 2, 3]),
    "tags.key_lengths": torch.tensor([2, 0, 1]),
    "tags.lengths": torch.tensor([1, 2]),
}


def test_several_values_per_event_are_held_to_both_their_lengths() -> None:
    assert check_inputs(_TAG_INPUTS, [_TAGS])["tags.key_lengths"].tolist() == [2, 0, 1]


@pytest.mark.parametrize(("name", "lengths"), [("key_lengths", [2, 1, 1]), ("lengths", [1, 1])])
def test_several_values_per_event_must_add_up(name: str, lengths: list[int]) -> None:
    with pytest.raises(RuntimeError, match=f"tags.{name} .* does not add up"):
        check_inputs({**_TAG_INPUTS, f"tags.{name}": torch.tensor(lengths)}, [_TAGS])


def test_standalone_features_that_a_group_joins_must_be_equally_long() -> None:
    numbers = replace(
        _TAGS, name="price", table=None, value_dim=1, sequence=Sequence(name="price", length=0, delim=";")
    )
    ids = replace(_TAGS, name="item", value_dim=1, sequence=Sequence(name="item", length=0, delim=";"))
    group = FeatureGroup(name="uih", kind=GroupKind.JAGGED_SEQUENCE, features=("item", "price"))
    inputs = {
        "item.values": torch.tensor([1, 2]),
        "item.lengths": torch.tensor([1, 1]),
        "price.values": torch.tensor([[1.0], [2.0]]),
        "price.lengths": torch.tensor([2, 0], dtype=torch.int32),
    }
    with pytest.raises(RuntimeError, match="price.lengths differs from item.lengths"):
        check_inputs(inputs, join_sequences([ids, numbers], [group]))
