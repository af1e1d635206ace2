"""Dynamic routing: how many interests, what each gathers, and that answers are repeatable."""

from dataclasses import replace

import pytest
import torch

from exporter.config.families.match.mind import CapsuleConfig, RoutingStart
from exporter.models.blocks.capsules import Capsules, build_capsules, valid_interests
from tests.exporter.models.recorded import read_batch, recorded_tower

EVEN = CapsuleConfig(max_k=5, max_seq_len=9, high_dim=6, routing_start=RoutingStart.ZEROS)
DRAWN = replace(EVEN, routing_start=RoutingStart.NORMAL)
LENGTHS = torch.tensor([12, 0, 1, 2, 7])


@pytest.fixture
def events() -> torch.Tensor:
    torch.manual_seed(0)
    return torch.randn(5, 12, 4)


def built(config: CapsuleConfig) -> Capsules:
    torch.manual_seed(1)
    return build_capsules(4, config)


@pytest.mark.parametrize(
    ("length", "count"),
    [(0, 1), (1, 1), (2, 1), (3, 2), (4, 2), (5, 3), (8, 3), (9, 4), (16, 4), (17, 5), (99, 5)],
)
def test_interests_grow_with_the_logarithm_of_the_history(length: int, count: int) -> None:
    valid = valid_interests(torch.tensor([length]), EVEN)
    assert valid.tolist() == [[place < count for place in range(5)]]


def test_a_constant_number_of_interests_does_not_ask_for_a_history() -> None:
    assert valid_interests(torch.tensor([0, 3]), replace(EVEN, const_caps_num=True)).all()


def test_more_interests_than_a_shift_has_bits_are_not_valid() -> None:
    assert valid_interests(torch.tensor([2**40]), replace(EVEN, max_k=70)).sum() == 40


@pytest.mark.parametrize("config", [EVEN, DRAWN])
def test_interests_that_are_not_valid_are_exact_zeros(config: CapsuleConfig, events: torch.Tensor) -> None:
    interests, valid = built(config)(events, LENGTHS)
    assert (interests[~valid] == 0).all()
    assert (interests[0, 0] != 0).all()
    assert (interests[1] == 0).all()


def test_interests_are_the_recorded_ones() -> None:
    tower = recorded_tower("mind", "user").module
    capsules = tower.get_submodule("user_tower._capsule_layer")
    for batch in ("b1", "b2", "b7", "b32", "b3_empty"):
        stages = read_batch("mind", f"user_tower__{batch}", "mid")
        lengths = stages["model.user_tower.embedding_group[hist.sequence_length]"]
        interests, valid = capsules(stages["model.user_tower._hist_seq_mlp_out"], lengths)
        torch.testing.assert_close(interests, stages["model.user_tower._capsule_layer.0"], rtol=0, atol=1e-6)
        assert torch.equal(valid, stages["model.user_tower._capsule_layer.1"])


def test_routing_from_zeros_gives_every_valid_interest_the_same(events: torch.Tensor) -> None:
    interests, _ = built(EVEN)(events, LENGTHS)
    assert (interests[0, :4] == interests[0, :1]).all()


def test_routing_from_zeros_is_what_rounds_of_routing_approach(events: torch.Tensor) -> None:
    """The rounds themselves, in double precision, where what rounding adds to them stays small."""
    routed = built(DRAWN).double()
    routed.load_state_dict(built(EVEN).double().state_dict())
    routed.get_buffer("_start").zero_()
    expected, _ = routed(events.double(), LENGTHS)
    torch.testing.assert_close(built(EVEN)(events, LENGTHS)[0], expected.float())


def test_routing_from_a_drawing_tells_interests_apart(events: torch.Tensor) -> None:
    interests, _ = built(DRAWN)(events, LENGTHS)
    assert (interests[0, 0] - interests[0, 1]).abs().max() > 1e-3


def test_the_drawing_is_the_same_in_every_build(events: torch.Tensor) -> None:
    with torch.device("meta"):
        elsewhere = built(DRAWN)
    elsewhere.load_state_dict(built(DRAWN).state_dict(), assign=True)
    assert torch.equal(elsewhere(events, LENGTHS)[0], built(DRAWN)(events, LENGTHS)[0])


def test_a_smaller_deviation_is_a_smaller_start() -> None:
    start = built(DRAWN).get_buffer("_start")
    smaller = built(replace(DRAWN, routing_logits_stddev=0.25)).get_buffer("_start")
    torch.testing.assert_close(smaller, start / 4)


@pytest.mark.parametrize("config", [EVEN, DRAWN])
def test_events_behind_max_seq_len_and_padding_change_nothing(
    config: CapsuleConfig, events: torch.Tensor
) -> None:
    capsules = built(config)
    other = events.clone()
    other[0, 9:], other[3, 2:] = 7.0, 7.0
    assert torch.equal(capsules(events, LENGTHS)[0], capsules(other, LENGTHS)[0])


@pytest.mark.parametrize("config", [EVEN, DRAWN])
def test_no_events_at_all_are_interests_of_zeros(config: CapsuleConfig) -> None:
    interests, valid = built(config)(torch.zeros(2, 0, 4), torch.tensor([0, 0]))
    assert (interests == 0).all()
    assert valid.sum() == 2
