"""Residual quantisation: codebooks that quantise, one after another, what those before them left of a vector.

The walk is that of RQ-VAE (Lee et al. 2022, arXiv:2203.01941, section 3.1.2, equations 1 and 3); TIGER takes
its codes as semantic ids (Rajput et al. 2023, arXiv:2305.05065, section 3.1).

B rows, D width, K rows of a codebook, L codebooks, C candidates.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from exporter.config.blocks.residual_quantizer import Distance, ResidualQuantizerConfig

_EPS = 1e-12  # the least length that a vector is divided by


class Codebook(nn.Module, ABC):
    """Rows that residuals are compared with, under the checkpoint's names."""

    @property
    @abstractmethod
    def rows(self) -> Tensor:
        """The rows: (K, D)."""


class LearnedCodebook(Codebook):
    """Rows that were trained together with an encoder."""

    def __init__(self, rows: int, width: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(rows, width)

    @property
    def rows(self) -> Tensor:
        return self.embedding.weight


class Centroids(Codebook):
    """Rows that k-means found once training had ended; until then they are zeros."""

    centroids: Tensor

    def __init__(self, rows: int, width: int) -> None:
        super().__init__()
        self.register_buffer("centroids", torch.zeros(rows, width))
        self.register_buffer("_is_initialized", torch.zeros((), dtype=torch.bool))

    @property
    def rows(self) -> Tensor:
        return self.centroids

    @property
    def is_fitted(self) -> bool:
        """Return whether k-means has found the rows; zeros are not found, whatever the flag says."""
        return bool(self.get_buffer("_is_initialized")) and bool(self.centroids.any())


class ResidualQuantizer(nn.Module):
    """The codes of vectors and, if configured, candidates: ids that differ from those in the last code."""

    def __init__(self, config: ResidualQuantizerConfig, codebooks: Sequence[Codebook]) -> None:
        super().__init__()
        self._scaled = config.normalize_residuals
        self._distance = config.distance
        self._candidates = config.candidates
        self.layers = nn.ModuleList(codebooks)

    def forward(self, x_BD: Tensor) -> dict[str, Tensor]:
        """Return `codes` (B, L), and `candidate_codes` (B, C·L) with `candidate_scores` (B, C), if any."""
        *firsts, last = self.codebooks
        codes: list[Tensor] = []
        residual_BD = x_BD
        for codebook in firsts:
            residual_BD = self.scale(residual_BD)
            code_B = self.distances(residual_BD, codebook.rows).argmin(dim=1)
            residual_BD = residual_BD - F.embedding(code_B, codebook.rows)
            codes.append(code_B.unsqueeze(1))
        distances_BK = self.distances(self.scale(residual_BD), last.rows)
        scores_BC, last_BC = distances_BK.topk(max(self._candidates, 1), dim=1, largest=False)
        outputs = {"codes": torch.cat([*codes, last_BC[:, :1]], dim=1)}
        if self._candidates:
            chosen = torch.cat([*codes, last_BC], dim=1)
            outputs["candidate_codes"] = chosen.index_select(1, self._columns(chosen))
            outputs["candidate_scores"] = scores_BC.to(x_BD.dtype)
        return outputs

    def _columns(self, chosen: Tensor) -> Tensor:
        """Return the columns of `chosen`, first codes and then all last ones, as the candidates list them."""
        # By number: inductor takes a batch to be no single row where the codes get an axis of candidates.
        firsts = len(self.layers) - 1
        places = torch.arange(self._candidates * len(self.layers), device=chosen.device)
        code, candidate = places % len(self.layers), places // len(self.layers)
        return torch.where(code < firsts, code, firsts + candidate)

    @property
    def codebooks(self) -> tuple[Codebook, ...]:
        return cast(tuple[Codebook, ...], tuple(self.layers))

    def scale(self, residual_BD: Tensor) -> Tensor:
        """Return the residual as it is compared: of unit length, if so configured."""
        return F.normalize(residual_BD, dim=1, eps=_EPS) if self._scaled else residual_BD

    def distances(self, residual_BD: Tensor, rows_KD: Tensor) -> Tensor:
        """Return the squared L2 distance, or the negated cosine, of each residual to each row: (B, K), fp64.

        In fp64 products of matrices are exact enough to choose the nearest row by, in batches of every size
        and in every order of summation, and autocast leaves them alone.
        """
        if self._distance is Distance.COSINE:
            residual_BD, rows_KD = (F.normalize(each, dim=1, eps=_EPS) for each in (residual_BD, rows_KD))
        residual_BD, rows_KD = residual_BD.double(), rows_KD.double()
        products_BK = residual_BD @ rows_KD.t()
        if self._distance is Distance.COSINE:
            return -products_BK
        squares = residual_BD.square().sum(dim=1, keepdim=True) + rows_KD.square().sum(dim=1)
        return (squares - 2 * products_BK).clamp(min=0)

    def leeway(self, residual_BD: Tensor, chosen_BD: Tensor, rows_KD: Tensor, error_B1: Tensor) -> Tensor:
        """Return how much the distances to a chosen row and to each other row may come closer: (B, K).

        The residuals may be wrong by vectors of at most `error_B1` in length. A difference of two distances
        is linear in the residual: its slope is twice the difference of the rows, or that of the scaled rows.
        """
        if self._distance is Distance.L2:
            return 2 * error_B1 * torch.cdist(chosen_BD, rows_KD)
        lengths_B1 = residual_BD.norm(dim=1, keepdim=True).clamp(min=_EPS)
        chosen_BD, rows_KD = (F.normalize(each, dim=1, eps=_EPS) for each in (chosen_BD, rows_KD))
        return 2 * error_B1 / lengths_B1 * torch.cdist(chosen_BD, rows_KD)
