"""Conversion of pipeline-config text to its protobuf message and back; errors give line and column."""

from collections.abc import Iterator
from textwrap import shorten

from google.protobuf import text_format
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from exporter.config.pb.pipeline_pb2 import EasyRecConfig
from exporter.errors import InvalidPipelineConfig
from exporter.redaction import name_first

# Required fields that may be missing, by their message: TorchEasyRec reads a config without asking whether
# they are there, and an export does not read them, or can do with the value that a missing field has.
_NOT_READ = frozenset(  # columns and operators of raw values, as rows are encoded; labels of training
    (
        "expression", "map", "key", "nested_map", "pkey", "skey", "query", "title", "document", "method",
        "operator_name", "operator_lib_file", "label_name", "pair_feature_group", "pair_flag_feature_group",
    )
)  # fmt: skip
_READ = ("feature_configs", "model_config")
_OF_TRAINING = frozenset(("losses", "metrics", "train_metrics", "admission_strategy"))
_USABLE_UNSET = frozenset(
    (
        # A table of width 0 is refused where a group reads it, but a feature may be in no group.
        "IdFeature.embedding_dim", "TokenizeFeature.embedding_dim", "BoolMaskFeature.embedding_dim",
        "SequenceFeature.sequence_length",  # 0: none is declared
        "DSSM.output_dim", "DSSMV2.output_dim", "DAT.output_dim", "MIND.output_dim",  # 0: no projection
        "InterventionTaskTower.low_rank_dim",  # 0: no intervention
        "MultiTower.final", "MultiTowerDIN.final",  # none
        "DCNV1.cross", "DCNV2.cross",  # all of their fields have defaults
        "ExtractionNetwork.expert_num_per_task",  # 0: the shared experts alone
        "ExtractionNetwork.network_name",  # names it in errors only
        # The only encoder of a group reads the only sequence there is.
        "DINEncoder.input", "SimpleAttention.input", "PoolingEncoder.input", "MultiWindowDINEncoder.input",
        "SelfAttentionEncoder.input",
    )
)  # fmt: skip

_LONGEST_QUOTE = 300  # characters; protobuf quotes the whole line


def read_message(text: str, where: str) -> EasyRecConfig:
    """Parse the text as TorchEasyRec does: a field given twice takes its last value.

    Raises:
        InvalidPipelineConfig: bad syntax or an unknown name, with line and column.
    """
    message = EasyRecConfig()
    try:
        text_format.Merge(text, message)
    except text_format.ParseError as error:
        line, column = error.GetLine(), error.GetColumn()
        place = where if line is None else f"{where}:{line}:{column}"
        problem = str(error).split(" : ", 1)[-1].replace("slipway.protos.", "")
        raise InvalidPipelineConfig(
            f"{place}: {shorten(problem, _LONGEST_QUOTE)}",
            hint="correct the text there; names are those of TorchEasyRec's pipeline.config",
            where=place,
        ) from error
    except RecursionError as error:
        raise InvalidPipelineConfig(
            f"{where}: messages are nested too deeply",
            hint="nest operator_params of custom features less deeply",
            where=where,
        ) from error
    return message


def require_fields(message: EasyRecConfig, where: str) -> None:
    """Refuse a config without a required field that an export reads and whose unset value has no meaning.

    Raises:
        InvalidPipelineConfig: naming all missing fields.
    """
    missing = [path for part in _READ for path in _missing_fields(message, part, "")]
    if missing:
        raise InvalidPipelineConfig(
            f"{where} lacks required fields: {name_first(missing)}",
            hint="add them; feature_configs[0] is the first entry",
            where=f"{where}: {missing[0]}",
        )


def write_message(message: EasyRecConfig) -> str:
    return text_format.MessageToString(message, as_utf8=True)


def _missing_fields(message: Message, name: str, path: str) -> Iterator[str]:
    """Yield the path of every field that is needed and not set in the messages of one field.

    protobuf's FindInitializationErrors gives wrong paths for what follows a map, as in a custom feature.
    """
    content = getattr(message, name)
    alone = isinstance(content, Message)
    for number, inner in enumerate([content] if alone else content):
        at = f"{path}{name}." if alone else f"{path}{name}[{number}]."
        for field in inner.DESCRIPTOR.fields:
            if field.is_required and not inner.HasField(field.name) and _is_needed(field):
                yield f"{at}{field.name}"
        for field, _ in inner.ListFields():
            if _holds_messages(field) and field.name not in _OF_TRAINING:
                yield from _missing_fields(inner, field.name, at)


def _holds_messages(field: FieldDescriptor) -> bool:
    """Return whether a field holds messages of TorchEasyRec: maps and protobuf's own need no fields."""
    kind = field.message_type
    return kind is not None and not kind.GetOptions().map_entry and kind.file.package != "google.protobuf"


def _is_needed(field: FieldDescriptor) -> bool:
    """Return whether an export reads the required field, and cannot do with its unset value."""
    message = field.containing_type
    assert message is not None
    usable = field.has_default_value or f"{message.name}.{field.name}" in _USABLE_UNSET
    return not usable and field.name not in _NOT_READ
