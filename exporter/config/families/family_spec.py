"""The torch-free half of a model family: the message it is configured by, its reader and its group check."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, Literal, TypeVar

from exporter.config.family import FamilyConfig
from exporter.config.pb.model_pb2 import ModelConfig
from exporter.config.schema import Feature, FeatureGroup

FamilyKind = Literal["rank", "multi_task", "match", "sid"]  # as TorchEasyRec groups its models
ConfigT = TypeVar("ConfigT", bound=FamilyConfig)


@dataclass(frozen=True, kw_only=True)
class FamilySpec(Generic[ConfigT]):
    """A family of TorchEasyRec's models.

    exporter.models.registry finds its modules in `exporter.models.<kind>.<message>`.
    """

    message: str  # name of the family's field in model_config
    kind: FamilyKind  # folder of its modules, here and in exporter.models
    # Return the family's config. Raises UnsupportedConfig and InvalidPipelineConfig, naming the field.
    read: Callable[[ModelConfig], ConfigT]
    # Refuse groups that are missing, or not of the kind and width the model needs, with the same errors.
    check: Callable[[ConfigT, Sequence[Feature], Sequence[FeatureGroup]], None]
