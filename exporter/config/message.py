"""Conversion of pipeline-config text to its protobuf message and back; errors give line and column."""

import re
from textwrap import shorten

from google.protobuf import text_format

from exporter.config.pb.pipeline_pb2 import EasyRecConfig
from exporter.errors import InvalidPipelineConfig
from exporter.redaction import name_first

# Paths of the required fields that an export reads. Losses and metrics concern training only; encoded rows do
# not have the raw columns of a feature; the only encoder of a group reads the only sequence there is; and a
# task of dc2vr without a low_rank_dim has no intervention.
_NEEDED = re.compile(
    r"^(feature_configs\[|model_config\.(?!losses|metrics|train_metrics))"
    r"(?!.*\.(expression|map|key|nested_map|pkey|skey|query|title|document|method|operator_name|operator_lib_file)$)"
    r"(?!.*\.sequence_encoders\[.*\.input$)"
    r"(?!.*\.task_towers\[.*\.low_rank_dim$)"
)

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
    """Refuse a config without a required field that an export reads; those of training may be missing.

    Raises:
        InvalidPipelineConfig: naming all missing fields.
    """
    unset = message.FindInitializationErrors()  # type: ignore[attr-defined]  # the stubs lack it
    missing = [path for path in unset if _is_needed(path)]
    if missing:
        raise InvalidPipelineConfig(
            f"{where} lacks required fields: {name_first(missing)}",
            hint="add them; feature_configs[0] is the first entry",
            where=f"{where}: {missing[0]}",
        )


def write_message(message: EasyRecConfig) -> str:
    return text_format.MessageToString(message, as_utf8=True)


def _is_needed(path: str) -> bool:
    """Return whether an export reads the required field at `path`, and the .proto gives it no default."""
    if not _NEEDED.match(path):
        return False
    *parents, name = re.sub(r"\[[^]]*\]", "", path).split(".")
    fields = EasyRecConfig.DESCRIPTOR.fields_by_name
    for parent in parents:
        inner = fields[parent].message_type
        assert inner is not None
        fields = inner.fields_by_name
    return not fields[name].has_default_value
