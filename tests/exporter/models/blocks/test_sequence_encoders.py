"""Sequence encoders: what no recording shows."""

import pytest
import torch
from torch import Tensor, nn

from exporter.config.blocks.mlp import MlpConfig
from exporter.config.blocks.sequence_encoders import (
    DinEncoderConfig,
    MultiWindowDinEncoderConfig,
    PoolingEncoderConfig,
    SelfAttentionEncoderConfig,
    SequenceEncoderConfig,
    SequencePooling,
    SimpleAttentionConfig,
    encoder_width,
)
from exporter.models.blocks.sequence_encoders import build_encoder

WIDTH = 4
MLP = MlpConfig(hidden_units=(5, 3), activation="Dice", use_bn=True)
ENCODERS: dict[str, SequenceEncoderConfig] = {
    "din": DinEncoderConfig(group="g", attn_mlp=MLP),
    "simple": SimpleAttentionConfig(group="g"),
    "sum": PoolingEncoderConfig(group="g", pooling=SequencePooling.SUM),
    "mean": PoolingEncoderConfig(group="g"),
    "windows": MultiWindowDinEncoderConfig(group="g", attn_mlp=MLP, windows=(1, 2)),
    "self": SelfAttentionEncoderConfig(group="g", width=6, num_heads=3),
}


def built(config: SequenceEncoderConfig) -> nn.Module:
    torch.manual_seed(0)
    return build_encoder(config, query_width=WIDTH, sequence_width=WIDTH).eval()


def embedded(lengths: list[int], places: int) -> dict[str, Tensor]:
    """Rows of these lengths, padded to as many places with zeros."""
    torch.manual_seed(1)
    counts = torch.tensor(lengths)
    filled = torch.arange(places) < counts.unsqueeze(1)
    sequence = torch.randn(len(lengths), places, WIDTH) * filled.unsqueeze(2)
    return {"g.query": torch.randn(len(lengths), WIDTH), "g.sequence": sequence, "g.sequence_length": counts}


@pytest.mark.parametrize("name", ENCODERS)
def test_a_block_is_as_wide_as_the_config_says(name: str) -> None:
    width = encoder_width(ENCODERS[name], query_width=WIDTH, sequence_width=WIDTH)
    assert built(ENCODERS[name])(embedded([3, 0, 1], 3)).shape == (3, width)


@pytest.mark.parametrize("name", ENCODERS)
def test_padding_behind_the_longest_row_changes_nothing(name: str) -> None:
    groups = embedded([3, 0, 1], 3)
    padded = groups | {"g.sequence": nn.functional.pad(groups["g.sequence"], (0, 0, 0, 2))}
    encoder = built(ENCODERS[name])
    torch.testing.assert_close(encoder(padded), encoder(groups))


@pytest.mark.parametrize("name", ENCODERS)
@pytest.mark.parametrize("places", [0, 2])
def test_a_batch_of_nothing_but_empty_rows_is_computed(name: str, places: int) -> None:
    block = built(ENCODERS[name])(embedded([0], places))
    query = embedded([0], places)["g.query"]
    expected = (
        torch.cat([torch.zeros(1, block.shape[1] - WIDTH), query], dim=1) if name == "windows" else 0 * block
    )
    torch.testing.assert_close(block, expected)


@pytest.mark.parametrize(
    "config",
    [
        DinEncoderConfig(group="g", attn_mlp=MLP, max_seq_length=2),
        SimpleAttentionConfig(group="g", max_seq_length=2),
        PoolingEncoderConfig(group="g", max_seq_length=2),
    ],
)
def test_a_cut_sequence_is_as_one_that_was_never_longer(config: SequenceEncoderConfig) -> None:
    groups = embedded([4, 0, 1, 2], 4)
    short = groups | {
        "g.sequence": groups["g.sequence"][:, :2],
        "g.sequence_length": torch.tensor([2, 0, 1, 2]),
    }
    encoder = built(config)
    torch.testing.assert_close(encoder(groups), encoder(short))


def test_a_row_without_elements_weighs_all_places_alike() -> None:
    """As TorchEasyRec does: what other features of the group have there counts."""
    groups = embedded([2, 2], 3) | {"g.sequence_length": torch.tensor([2, 0])}
    expected = groups["g.sequence"][1].sum(dim=0) / 2  # places of the longest row
    torch.testing.assert_close(built(ENCODERS["simple"])(groups)[1], expected)


def test_a_narrower_query_is_filled_up_with_zeros() -> None:
    groups = embedded([2, 3], 3)
    narrow = build_encoder(ENCODERS["din"], query_width=WIDTH - 1, sequence_width=WIDTH).eval()
    encoder = built(ENCODERS["din"])
    narrow.load_state_dict(encoder.state_dict())
    filled = groups["g.query"] * torch.tensor([1.0, 1.0, 1.0, 0.0])
    block = narrow(groups | {"g.query": groups["g.query"][:, :-1]})
    torch.testing.assert_close(block, encoder(groups | {"g.query": filled}))


def test_windows_are_means_of_their_own_elements() -> None:
    encoder = built(MultiWindowDinEncoderConfig(group="g", attn_mlp=MLP, windows=(1, 3)))
    ones = {name: torch.zeros_like(weight) for name, weight in encoder.state_dict().items()}
    counts = {name: weight for name, weight in encoder.state_dict().items() if "windows_len" in name}
    encoder.load_state_dict(ones | counts | {"linear.bias": torch.ones(1)})  # every score is 1
    groups = embedded([3, 5], 5)
    sequence = groups["g.sequence"]
    block = encoder(groups).unflatten(1, (3, WIDTH))
    torch.testing.assert_close(block[:, 0], sequence[:, 0])
    torch.testing.assert_close(block[:, 1], sequence[:, 1:4].sum(dim=1) / torch.tensor([[2.0], [3.0]]))
    torch.testing.assert_close(block[:, 2], groups["g.query"])


def test_self_attention_is_torchs_own() -> None:
    encoder = built(ENCODERS["self"])
    groups = embedded([3, 2], 3)
    parts = [encoder.get_submodule(name)(groups["g.sequence"]) for name in ("_query", "_key", "_value")]
    hidden = torch.arange(3) >= groups["g.sequence_length"].unsqueeze(1)
    attended, _ = encoder.get_submodule("_multihead_attn")(*parts, key_padding_mask=hidden)
    expected = (attended * ~hidden.unsqueeze(2)).sum(dim=1) / groups["g.sequence_length"].unsqueeze(1)
    torch.testing.assert_close(encoder(groups), expected)


def test_self_attention_divides_a_cut_row_by_its_whole_length() -> None:
    groups = embedded([4], 4)
    short = groups | {"g.sequence": groups["g.sequence"][:, :2], "g.sequence_length": torch.tensor([2])}
    encoder = built(SelfAttentionEncoderConfig(group="g", width=6, num_heads=3, max_seq_length=2))
    torch.testing.assert_close(encoder(groups), encoder(short) / 2)
