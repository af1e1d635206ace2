"""Events and candidates come out in one width."""

import torch

from exporter.config.blocks.mlp import MlpConfig
from exporter.config.hstu.encoder import ContentEncoderConfig, ContentEncoderKind
from exporter.models.hstu.content_encoder import build_content_encoder

EVENTS, CANDIDATES = torch.ones(2, 3), torch.arange(8.0).view(2, 4)


def test_slicing_cuts_candidates() -> None:
    encoder = build_content_encoder(ContentEncoderConfig(kind=ContentEncoderKind.SLICE), uih=3, target=4)
    events, candidates = encoder(EVENTS, CANDIDATES)
    assert events is EVENTS
    assert candidates.tolist() == [[0, 1, 2], [4, 5, 6]]
    assert encoder.out_features == 3


def test_padding_fills_events_up_with_what_was_learned() -> None:
    encoder = build_content_encoder(ContentEncoderConfig(kind=ContentEncoderKind.PAD), uih=3, target=4)
    encoder.load_state_dict({"_target_enrich_dummy_embeddings": torch.tensor([[7.0]])})
    events, candidates = encoder(EVENTS, CANDIDATES)
    assert events.tolist() == [[1, 1, 1, 7]] * 2
    assert candidates is CANDIDATES


def test_perceptrons_are_named_for_what_they_read() -> None:
    config = ContentEncoderConfig(
        kind=ContentEncoderKind.MLP,
        uih_mlp=MlpConfig(hidden_units=(5,)),
        target_mlp=MlpConfig(hidden_units=(6, 5)),
    )
    encoder = build_content_encoder(config, uih=3, target=4)
    assert [tensor.shape[1] for tensor in encoder(EVENTS, CANDIDATES)] == [5, 5]
    assert {name.split(".")[0] for name in encoder.state_dict()} == {"uih_mlp", "target_mlp"}
