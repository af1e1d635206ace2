"""Two-tower match models: the settings that their families share, and the readers of those."""

from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar

from exporter.config.blocks.mlp import MlpConfig, read_optional_mlp
from exporter.config.family import TWO_TOWERS, FamilyConfig
from exporter.config.pb.match_models_pb2 import DAT, DSSM, DSSMV2, MIND
from exporter.config.pb.module_pb2 import MLP
from exporter.config.pb.tower_pb2 import Similarity as SimilarityMessage
from exporter.config.pb.tower_pb2 import Tower
from exporter.config.refusals import raise_invalid
from exporter.spec import TowerName


class Similarity(StrEnum):
    """Function that compares a user's embedding with an item's."""

    COSINE = "COSINE"
    INNER_PRODUCT = "INNER_PRODUCT"
    EUCLID = "EUCLID"


@dataclass(frozen=True, kw_only=True)
class DeepTowerConfig:
    """A tower over the concatenated vectors of DEEP groups, through an MLP if there is one."""

    inputs: tuple[str, ...]  # group names, in the order in which their vectors are concatenated
    mlp: MlpConfig | None  # None: the groups' vectors are the tower's output


@dataclass(frozen=True, kw_only=True)
class MatchConfig(FamilyConfig):
    """A model of two towers, by default each with tables of its own; the item tower is a deep one.

    Fields that only training reads are left out: temperature, in_batch_negative, simi_pow, loss weights.
    """

    item: DeepTowerConfig
    output_dim: int  # width of the projection behind each tower; 0: no projection
    similarity: Similarity
    towers: ClassVar[tuple[TowerName, ...]] = TWO_TOWERS
    tables_are_shared: ClassVar[bool] = False


def read_deep_tower(message: Tower, where: str) -> DeepTowerConfig:
    """Read a tower over one group; `where` is its place in the config, for errors."""
    return DeepTowerConfig(inputs=(message.input,), mlp=read_tower_mlp(message.mlp, f"{where}.mlp"))


def read_tower_mlp(message: MLP, where: str) -> MlpConfig | None:
    """Read a tower's MLP; None where it lists no layer, so that the input is the output."""
    return read_optional_mlp(message, where, is_set=bool(message.hidden_units))


def read_output_dim(message: DSSM | DSSMV2 | DAT | MIND) -> int:
    """Return the projection's width; TorchEasyRec takes every number that is not above 0 for none."""
    return max(message.output_dim, 0)


def read_similarity(message: DSSM | DSSMV2 | DAT | MIND) -> Similarity:
    """Return the similarity that a match model was trained with."""
    return Similarity(SimilarityMessage.Name(message.similarity))


def check_equal_widths(model: MatchConfig, *, user: int, item: int) -> None:
    """Refuse towers of different width without a projection, because their own outputs are compared.

    Raises:
        InvalidPipelineConfig: output_dim is 0, and `user` and `item`, the towers' own widths, differ.
    """
    if model.output_dim == 0 and user != item:
        raise_invalid(
            f"model_config.{model.family}",
            "output_dim is 0, so the towers' own widths are compared, and they differ: "
            f"user {user}, item {item}",
            hint="set output_dim above 0, or end both towers in the same width",
        )
