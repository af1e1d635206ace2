"""Content encoders, which give events and candidates, embedded in different widths, one width.

N events, M candidates, U and T their widths.
"""

import torch
from torch import Tensor, nn

from exporter.config.hstu.encoder import ContentEncoderConfig, ContentEncoderKind
from exporter.models.blocks.mlp import Mlp


class SliceContentEncoder(nn.Module):
    """slice_content_encoder: candidates are cut to the events' width."""

    def __init__(self, uih: int) -> None:
        super().__init__()
        self.out_features = uih

    def forward(self, events_NU: Tensor, candidates_MT: Tensor) -> tuple[Tensor, Tensor]:
        return events_NU, candidates_MT[:, : self.out_features]


class PadContentEncoder(nn.Module):
    """pad_content_encoder: events are filled up to the candidates' width with learned numbers."""

    def __init__(self, uih: int, target: int) -> None:
        super().__init__()
        self.out_features = target
        self._target_enrich_dummy_embeddings = nn.Parameter(torch.empty(1, target - uih))
        nn.init.normal_(self._target_enrich_dummy_embeddings, std=0.1)

    def forward(self, events_NU: Tensor, candidates_MT: Tensor) -> tuple[Tensor, Tensor]:
        filling = self._target_enrich_dummy_embeddings.expand(events_NU.shape[0], -1)
        return torch.cat([events_NU, filling], dim=1), candidates_MT


class MlpContentEncoder(nn.Module):
    """mlp_content_encoder: events and candidates each go through an MLP of their own."""

    def __init__(self, uih_mlp: Mlp, target_mlp: Mlp) -> None:
        super().__init__()
        self.out_features = uih_mlp.out_features
        self.uih_mlp = uih_mlp
        self.target_mlp = target_mlp

    def forward(self, events_NU: Tensor, candidates_MT: Tensor) -> tuple[Tensor, Tensor]:
        return self.uih_mlp(events_NU), self.target_mlp(candidates_MT)


ContentEncoder = SliceContentEncoder | PadContentEncoder | MlpContentEncoder


def build_content_encoder(config: ContentEncoderConfig, *, uih: int, target: int) -> ContentEncoder:
    match config.kind:
        case ContentEncoderKind.SLICE:
            return SliceContentEncoder(uih)
        case ContentEncoderKind.PAD:
            return PadContentEncoder(uih, target)
        case ContentEncoderKind.MLP:
            assert config.uih_mlp is not None and config.target_mlp is not None
            return MlpContentEncoder(Mlp(uih, config.uih_mlp), Mlp(target, config.target_mlp))
