"""Residual quantiser, which turns a vector into a semantic id of one code per codebook: settings, reader."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar

from exporter.config.family import ONE_TOWER, FamilyConfig
from exporter.config.pb.sid_models_pb2 import SidRqkmeans, SidRqvae
from exporter.config.refusals import raise_invalid, raise_unsupported
from exporter.spec import TowerName


class Distance(StrEnum):
    """Function by which the nearest row of a codebook is found."""

    L2 = "l2"  # squared
    COSINE = "cosine"  # negated


@dataclass(frozen=True, kw_only=True)
class ResidualQuantizerConfig:
    """Codebooks that quantise, one after another, what the codebooks before them have left of a vector."""

    codebooks: tuple[int, ...]  # rows of each
    normalize_residuals: bool  # whether each residual is scaled to unit length before it is compared
    distance: Distance = Distance.L2
    candidates: int = 0  # ids by the nearest rows of the last codebook; 0: none are output


@dataclass(frozen=True, kw_only=True)
class SidConfig(FamilyConfig):
    """A model of semantic ids: a residual quantiser behind the first group."""

    input: str  # name of the config's first group
    quantizer: ResidualQuantizerConfig
    towers: ClassVar[tuple[TowerName, ...]] = ONE_TOWER
    computes_ids: ClassVar[bool] = True

    def reads(self, _tower: TowerName, group: str) -> bool:
        return group == self.input


def read_residual_quantizer(
    model: SidRqvae | SidRqkmeans, where: str, *, distance: str = Distance.L2
) -> ResidualQuantizerConfig:
    """Read the quantiser of a model of semantic ids; `where` is the model's place in the config.

    Raises:
        InvalidPipelineConfig: there is no codebook, one without rows, or more candidates than rows.
        UnsupportedConfig: an unknown distance, or candidates that are found in another way.
    """
    if not model.codebook or 0 in model.codebook:
        raise_invalid(
            f"{where}.codebook", "it is empty or holds a 0", hint="list the number of rows of every codebook"
        )
    if distance not in set(Distance):
        raise_unsupported(f"{where}.distance_type", f"it is {distance!r}", hint='write "l2" or "cosine"')
    return ResidualQuantizerConfig(
        codebooks=tuple(model.codebook),
        normalize_residuals=model.normalize_residuals,
        distance=Distance(distance),
        candidates=_read_candidates(model, model.codebook, f"{where}.candidate_output_config"),
    )


def _read_candidates(model: SidRqvae | SidRqkmeans, codebooks: Sequence[int], where: str) -> int:
    """Return the number of candidates; 0 where they are not enabled."""
    config = model.candidate_output_config
    if not config.enabled:
        return 0
    if config.strategy != "last_layer_knn":
        raise_unsupported(
            f"{where}.strategy", f"it is {config.strategy!r}", hint='write "last_layer_knn", the only one'
        )
    if not 1 <= config.topk <= codebooks[-1]:
        raise_invalid(
            f"{where}.topk",
            f"it is {config.topk}, and the last codebook has {codebooks[-1]} rows to choose from",
            hint=f"set it from 1 to {codebooks[-1]}",
        )
    return config.topk
