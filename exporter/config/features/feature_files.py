"""Files that features name for feature generation: vocabularies, tokenizers, stop words and operators.

No model reads them. An export copies those it can read beside fg.json, and names the copies there.
"""

from collections.abc import Iterator, Mapping
from hashlib import md5
from pathlib import PurePosixPath

from exporter.config.features.feature_messages import FeatureMessage
from exporter.config.pb.feature_kinds_pb2 import CustomFeature, TextNormalizer, TokenizeFeature


def path_in_config(message: FeatureMessage, name: str) -> str:
    """Return a file's path as the config gives it: below `asset_dir` if that is set."""
    folder: str = getattr(message, "asset_dir", "")  # features of numbers name no files
    return str(PurePosixPath(folder) / name) if folder else name


def files_of(message: FeatureMessage) -> tuple[str, ...]:
    """Return the paths of the files that a feature names."""
    return tuple(path_in_config(message, getattr(part, field)) for part, field in _file_fields(message))


def published_name(path: str, content: bytes) -> str:
    """Return the name of a file's copy, by which two files of one name stay apart."""
    name = PurePosixPath(path)
    return f"{name.stem}_{md5(content, usedforsecurity=False).hexdigest()}{name.suffix}"


def rename_files(message: FeatureMessage, copies: Mapping[str, str]) -> None:
    """Name the copies, by the paths of their originals, in a feature's message; other files keep theirs."""
    for part, field in list(_file_fields(message)):
        path = path_in_config(message, getattr(part, field))
        setattr(part, field, copies.get(path, path))
    if "asset_dir" in message.DESCRIPTOR.fields_by_name:
        message.ClearField("asset_dir")


def _file_fields(message: FeatureMessage) -> Iterator[tuple[FeatureMessage | TextNormalizer, str]]:
    """Yield each field that holds a path, with its message."""
    if isinstance(message, CustomFeature) and message.operator_lib_file:
        yield message, "operator_lib_file"
    if getattr(message, "vocab_file", ""):
        yield message, "vocab_file"
    if isinstance(message, TokenizeFeature) and message.text_normalizer.stop_char_file:
        yield message.text_normalizer, "stop_char_file"
