"""The feature messages of a pipeline config, each with the sequence it stands in."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NoReturn

from exporter.config.pb.feature_kinds_pb2 import IdFeature, RawFeature
from exporter.config.pb.feature_pb2 import SequenceFeature
from exporter.config.pb.pipeline_pb2 import EasyRecConfig
from exporter.errors import InvalidPipelineConfig, UnsupportedConfig

FeatureMessage = IdFeature | RawFeature

_SUPPORTED = (
    "id_feature",
    "raw_feature",
    "sequence_id_feature",
    "sequence_raw_feature",
    "sequence_feature",
)


@dataclass(frozen=True, kw_only=True)
class FeatureSource:
    """A feature as it is written: its message, and the sequence_feature block around it if there is one."""

    message: FeatureMessage
    kind: str  # the field's name: "id_feature", "sequence_raw_feature", ...
    parent: SequenceFeature | None = None

    @property
    def name(self) -> str:
        """The flattened name, by which groups refer to the feature."""
        bare = self.message.feature_name
        return bare if self.parent is None else f"{self.parent.sequence_name}__{bare}"

    @property
    def is_sequence(self) -> bool:
        return self.parent is not None or self.kind.startswith("sequence_")

    @property
    def column_of_raw_rows(self) -> str:
        """The column that feature generation reads: `expression` without its side."""
        raw = self.message.expression.rsplit(":", 1)[-1]
        return raw if self.parent is None else f"{self.parent.sequence_name}__{raw}"

    def refuse(self, problem: str, *, hint: str) -> NoReturn:
        raise UnsupportedConfig(
            f"{self.kind} {self.name}: {problem}", hint=hint, where=f"feature_configs: {self.name}"
        )

    def invalid(self, problem: str, *, hint: str) -> NoReturn:
        raise InvalidPipelineConfig(
            f"{self.kind} {self.name}: {problem}", hint=hint, where=f"feature_configs: {self.name}"
        )


def feature_sources(config: EasyRecConfig) -> Iterator[FeatureSource]:
    """Every feature in the order of the config, those of a sequence_feature one by one.

    Raises:
        UnsupportedConfig: a kind of feature that Slipway does not build, by kind and name.
    """
    for position, entry in enumerate(config.feature_configs):
        kind = entry.WhichOneof("feature")
        if kind == "sequence_feature":
            yield from _grouped(entry.sequence_feature, f"feature_configs[{position}]")
        else:
            where = f"feature_configs[{position}]"
            yield FeatureSource(
                message=_supported(kind, getattr(entry, kind or "", None), where), kind=kind or ""
            )


def _grouped(parent: SequenceFeature, place: str) -> Iterator[FeatureSource]:
    if not parent.sequence_name:
        inner = [(entry, entry.WhichOneof("feature")) for entry in parent.features]
        names = ", ".join(str(getattr(entry, kind).feature_name) for entry, kind in inner if kind)
        raise InvalidPipelineConfig(
            f"{place}: the sequence_feature of {names or 'no features'} has an empty sequence_name",
            hint="name it: its features are called <sequence_name>__<feature_name> in groups and rows",
            where=f"{place}.sequence_feature.sequence_name",
        )
    for position, entry in enumerate(parent.features):
        kind = entry.WhichOneof("feature")
        where = f"feature_configs: {parent.sequence_name}, features[{position}]"
        message = _supported(kind, getattr(entry, kind or "", None), where)
        yield FeatureSource(message=message, kind=kind or "", parent=parent)


def _supported(kind: str | None, message: object, where: str) -> FeatureMessage:
    if kind is None:
        raise InvalidPipelineConfig(
            f"{where} is empty", hint="name a feature in it, or delete the entry", where=where
        )
    if not isinstance(message, IdFeature | RawFeature):
        name = getattr(message, "feature_name", "")
        raise UnsupportedConfig(
            f"{where}: {kind} {name!r} is of a kind that Slipway does not export",
            hint=f"supported are {', '.join(_SUPPORTED)}",
            where=where,
        )
    return message
