"""sid_rqvae: semantic ids by codebooks that were trained with an encoder of one group's vector.

B rows, D width.
"""

import torch
from torch import Tensor, nn

from exporter.config.blocks.mlp import MlpConfig
from exporter.config.families.sid.sid_rqvae import SidRqvaeConfig
from exporter.config.features.widths import group_width
from exporter.config.schema import PipelineConfig
from exporter.models.blocks.dropout import Dropout
from exporter.models.blocks.mlp import Mlp
from exporter.models.blocks.residual_quantizer import LearnedCodebook
from exporter.models.ranking import make_builders
from exporter.models.semantic_ids import SidTower


class SidRqvae(SidTower):
    """The whole model; the decoder and the flag of the codebooks are the checkpoint's, for training only."""

    def __init__(self, pipeline: PipelineConfig) -> None:
        config = pipeline.model
        assert isinstance(config, SidRqvaeConfig)
        super().__init__(pipeline, LearnedCodebook, config.embed_dim)
        self.has_pairs = config.pair is not None
        width = group_width(pipeline, config.input)
        hidden = config.hidden_widths(width)
        self._encoder = _coder(width, hidden, config.embed_dim)
        self._decoder = _coder(config.embed_dim, hidden[::-1], width)
        self._quantizer.register_buffer("initted", torch.tensor([True]))

    def encode(self, group_BD: Tensor) -> Tensor:
        encoded_BD: Tensor = self._encoder(group_BD)
        return encoded_BD


def _coder(before: int, hidden: tuple[int, ...], after: int) -> nn.Sequential:
    return nn.Sequential(Mlp(before, MlpConfig(hidden_units=hidden)), nn.Linear(hidden[-1], after))


build_served, _ = make_builders(SidRqvae)


def build_trained(pipeline: PipelineConfig, _dropout: Dropout) -> SidRqvae:
    """Return the model to be trained: the loss over pairs, where there is one, has weights as well."""
    model = SidRqvae(pipeline)
    if model.has_pairs:
        scales = {f"logit_scale_{name}": nn.Parameter(torch.zeros(())) for name in ("self", "cl", "ori")}
        losses = nn.ModuleDict({"contrastive_loss": nn.ParameterDict(scales)})
        model.add_module("_loss_modules", losses)
    return model
