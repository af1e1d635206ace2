"""Groups of every feature kind, and their sequence encoders, embed to what TorchEasyRec recorded."""

from functools import cache

import pytest
import torch
from safetensors.torch import load_file

from exporter.checkpoint.keymap import PREFIX
from exporter.checkpoint.load import load_weights
from exporter.checkpoint.read import open_checkpoint
from exporter.config.features.groups import read_groups
from exporter.config.features.read_features import read_features
from exporter.config.features.tables import take_rows
from exporter.config.message import read_message
from exporter.config.schema import PipelineConfig
from exporter.models.embedding.embedding_group import EmbeddingGroup
from tests.exporter.models.recorded import FIXTURES, TOLERANCE, pipeline_of

MODELS = ("multi_tower", "multi_tower_seq_kinds", "mask_net")
RECORDED = [
    (model, path.name.removesuffix(".mid.safetensors"))
    for model in MODELS
    for path in sorted((FIXTURES / model / "outputs").glob("*.mid.safetensors"))
]


@cache
def _embedding_group(model: str) -> EmbeddingGroup:
    """The embedding group alone, whatever family reads it."""
    config = read_message((FIXTURES / model / "pipeline.config").read_text(), model)
    features = read_features(config)
    [folder] = (FIXTURES / model).glob("model.ckpt-*")
    checkpoint = open_checkpoint(folder)
    pipeline = PipelineConfig(
        text="",
        features=features,
        groups=read_groups(config.model_config, features),
        model=pipeline_of("multi_tower_din").model,  # not asked here
        train_input_path="",
    )
    shapes = {name: meta.shape for name, meta in checkpoint.tensors().items()}
    group = EmbeddingGroup(take_rows(pipeline, shapes))
    load_weights(group, checkpoint, prefix=f"{PREFIX}embedding_group.")
    return group.eval()


@pytest.mark.parametrize(("model", "batch"), RECORDED)
def test_groups_are_embedded_as_recorded(model: str, batch: str) -> None:
    stages = load_file(FIXTURES / model / "outputs" / f"{batch}.mid.safetensors")
    recorded = {
        name.partition("[")[2].removesuffix("]"): value
        for name, value in stages.items()
        if name.startswith("model.embedding_group[")
    }
    inputs = load_file(FIXTURES / model / "outputs" / f"{batch}.in.safetensors")
    with torch.no_grad():
        embedded = _embedding_group(model)(inputs)
    assert recorded
    for name, expected in recorded.items():
        found = embedded[name].to(expected.dtype)  # lengths are int64 here, as sums of them are
        if name.endswith(".sequence"):  # padded to two places at least
            assert not found[:, expected.shape[1] :].any()
            found = found[:, : expected.shape[1]]
        scale = expected.abs().max().item() if expected.numel() else 1.0
        torch.testing.assert_close(found, expected, rtol=0, atol=TOLERANCE * scale)
