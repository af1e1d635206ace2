"""Feature messages of a pipeline config, each with the sequence_feature block around it."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NoReturn

from exporter.config.pb.feature_kinds_pb2 import (
    BoolMaskFeature,
    CombineFeature,
    ComboFeature,
    CustomFeature,
    ExprFeature,
    IdFeature,
    KvDotProduct,
    LookupFeature,
    MatchFeature,
    OverlapFeature,
    RawFeature,
    TokenizeFeature,
)
from exporter.config.pb.feature_pb2 import FeatureConfig, SeqFeatureConfig, SequenceFeature
from exporter.config.pb.pipeline_pb2 import EasyRecConfig
from exporter.config.schema import FeatureKind
from exporter.errors import InvalidPipelineConfig, UnsupportedConfig

FeatureMessage = (
    IdFeature
    | RawFeature
    | ComboFeature
    | LookupFeature
    | MatchFeature
    | ExprFeature
    | OverlapFeature
    | KvDotProduct
    | CombineFeature
    | BoolMaskFeature
    | TokenizeFeature
    | CustomFeature
)

_USUAL_JOINT, RTP_JOINT = _JOINTS = "__", "_"


@dataclass(frozen=True, kw_only=True)
class FeatureSource:
    """A feature as the config writes it: its message, and the sequence_feature block around it if any."""

    message: FeatureMessage
    joint: str  # between the names of a sequence and of a feature in it; see `name_joint`
    field: str  # name of the oneof field that holds the message: "id_feature", "sequence_raw_feature", ...
    parent: SequenceFeature | None = None

    @property
    def name(self) -> str:
        """Flattened name, by which groups refer to the feature."""
        bare = self.message.feature_name
        return bare if self.parent is None else f"{self.parent.sequence_name}{self.joint}{bare}"

    @property
    def kind(self) -> FeatureKind:
        return FeatureKind(self.field.removeprefix("sequence_"))

    @property
    def is_sequence(self) -> bool:
        return self.parent is not None or self.field.startswith("sequence_") or self.is_sequence_of_tokens

    @property
    def is_sequence_of_tokens(self) -> bool:
        """Return whether the elements are the tokens of one text."""
        return isinstance(self.message, TokenizeFeature) and self.message.tokens_as_sequence

    @property
    def columns_of_raw_rows(self) -> tuple[str, ...]:
        """Columns that feature generation reads: the feature's inputs without a side such as `user:`."""
        prefix = f"{self.parent.sequence_name}{self.joint}" if self.parent else ""
        return tuple(prefix + written.rsplit(":", 1)[-1] for written in _inputs(self.message))

    @property
    def generated_inputs(self) -> tuple[str, ...]:
        """Names that other features may have whose values feature generation reads for this one.

        A feature of a sequence may call another one of its sequence by the name without the sequence's.
        """
        written = (each.partition(":") for each in _inputs(self.message))
        names = [name for side, _, name in written if side == "feature"]
        prefix = f"{self.parent.sequence_name}{self.joint}" if self.parent else ""
        return tuple(dict.fromkeys((*names, *(prefix + name for name in names))))

    def refuse(self, problem: str, *, hint: str) -> NoReturn:
        raise UnsupportedConfig(
            f"{self.field} {self.name}: {problem}", hint=hint, where=f"feature_configs: {self.name}"
        )

    def raise_invalid(self, problem: str, *, hint: str) -> NoReturn:
        raise InvalidPipelineConfig(
            f"{self.field} {self.name}: {problem}", hint=hint, where=f"feature_configs: {self.name}"
        )


def feature_sources(config: EasyRecConfig) -> Iterator[FeatureSource]:
    """Yield every feature in the order of the config, those of a sequence_feature one by one.

    Raises:
        InvalidPipelineConfig: an entry without a feature, or a sequence_feature without a name.
    """
    joint = name_joint(config)
    for position, entry in enumerate(config.feature_configs):
        where = f"feature_configs[{position}]"
        if entry.WhichOneof("feature") == "sequence_feature":
            yield from _grouped(entry.sequence_feature, where, joint)
        else:
            yield _source(entry, where, joint)


def name_joint(config: EasyRecConfig) -> str:
    """Return what joins the name of a sequence and that of a feature in it, as the feature groups write it.

    It is two underscores, or one in a model that was trained for RTP, whose feature generator names features
    and columns so. TorchEasyRec is told by an environment variable, and a config by its groups alone.
    """
    groups = config.model_config.feature_groups
    named = {name for group in groups for name in group.feature_names}
    named |= {name for group in groups for inner in group.sequence_groups for name in inner.feature_names}
    standalone: set[str] = set()
    grouped: set[tuple[str, str]] = set()
    for entry in config.feature_configs:
        if entry.WhichOneof("feature") == "sequence_feature":
            sequence = entry.sequence_feature
            grouped.update((sequence.sequence_name, _bare_name(each)) for each in sequence.features)
        else:
            standalone.add(_bare_name(entry))
    named -= standalone
    used = (joint for joint in _JOINTS if any(f"{outer}{joint}{bare}" in named for outer, bare in grouped))
    return next(used, _USUAL_JOINT)


def _bare_name(entry: FeatureConfig | SeqFeatureConfig) -> str:
    return getattr(getattr(entry, entry.WhichOneof("feature") or "", None), "feature_name", "")


def _inputs(message: FeatureMessage) -> tuple[str, ...]:  # noqa: PLR0911  one per kind of message
    """Return the inputs of feature generation, each as `<side>:<column>`."""
    match message:
        case ComboFeature() | BoolMaskFeature() | CustomFeature():
            return tuple(message.expression)
        case ExprFeature():
            return tuple(message.variables)
        case LookupFeature():
            return message.map, message.key
        case MatchFeature():
            keys = (key for key in (message.pkey, message.skey) if key != "ALL")
            return message.nested_map, *keys
        case OverlapFeature():
            return message.query, message.title
        case KvDotProduct():
            return message.query, message.document
        case _:
            return (message.expression,)


def _grouped(parent: SequenceFeature, place: str, joint: str) -> Iterator[FeatureSource]:
    if not parent.sequence_name:
        inner = [(entry, entry.WhichOneof("feature")) for entry in parent.features]
        names = ", ".join(str(getattr(entry, field).feature_name) for entry, field in inner if field)
        raise InvalidPipelineConfig(
            f"{place}: the sequence_feature of {names or 'no features'} has an empty sequence_name",
            hint="name it: its features are called <sequence_name>__<feature_name> in groups and rows",
            where=f"{place}.sequence_feature.sequence_name",
        )
    for position, entry in enumerate(parent.features):
        where = f"feature_configs: {parent.sequence_name}, features[{position}]"
        yield _source(entry, where, joint, parent)


def _source(
    entry: FeatureConfig | SeqFeatureConfig, where: str, joint: str, parent: SequenceFeature | None = None
) -> FeatureSource:
    field = entry.WhichOneof("feature")
    if field is None:
        raise InvalidPipelineConfig(
            f"{where} is empty", hint="name a feature in it, or delete the entry", where=where
        )
    return FeatureSource(message=getattr(entry, field), field=field, parent=parent, joint=joint)
