"""Copies of the files that features name, which lie beside fg.json for the feature generator."""

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from exporter.config.features.feature_files import files_of, published_name
from exporter.config.render import tower_sources
from exporter.config.schema import TowerConfig
from exporter.errors import ExportError, SourceNotFound
from exporter.redaction import name_first
from exporter.storage.open import read_uri, split_uri
from exporter.storage.places import Places
from exporter.storage.uris import NamedUri

MOST_BYTES = 256 << 20  # of all files of a tower together

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class FeatureCopies:
    """The contents of files that features name, and the names of their copies."""

    names: Mapping[str, str] = field(default_factory=dict)  # path in the config -> name of the copy
    contents: Mapping[str, bytes] = field(default_factory=dict, repr=False)  # by the name of the copy
    missing: Mapping[str, str] = field(default_factory=dict)  # path in the config -> why there is no copy

    def remarks(self) -> tuple[str, ...]:
        """Return a sentence on the files that could not be copied, for the manifest; none if all were."""
        if not self.missing:
            return ()
        named = name_first([f"{path} ({why})" for path, why in self.missing.items()])
        return (
            f"fg.json names files as the config does, because they could not be copied beside it: {named}",
        )


def copy_feature_files(
    tower: TowerConfig, *, assets_uri: str | None, config_uri: str | None, places: Places
) -> FeatureCopies:
    """Read the files that the tower's features name, as far as they can be read.

    A relative path begins in `assets_uri` or, without one, in the config's folder. Only what the job may read
    is read. A file that cannot be read is no error: the model does not need it.
    """
    folder = assets_uri or _folder(config_uri)
    names: dict[str, str] = {}
    contents: dict[str, bytes] = {}
    missing: dict[str, str] = {}
    for path in dict.fromkeys(_paths(tower)):
        try:
            content = _read(path, folder, places, limit=MOST_BYTES - sum(map(len, contents.values())))
        except ExportError as error:
            missing[path] = error.message
            log.warning("feature_file_missing", extra={"file": path, "why": error.message})
        else:
            names[path] = published_name(path, content)
            contents[names[path]] = content
    return FeatureCopies(names=names, contents=contents, missing=missing)


def _paths(tower: TowerConfig) -> Iterator[str]:
    for source in tower_sources(tower):
        yield from files_of(source.message)


def _folder(config_uri: str | None) -> str | None:
    return None if config_uri is None else split_uri(config_uri)[0]


def _read(path: str, folder: str | None, places: Places, *, limit: int) -> bytes:
    """Return a file's content.

    Raises:
        ExportError: it is not there, too large, or not to be read by this job.
    """
    is_whole = "://" in path or PurePosixPath(path).is_absolute()
    if not is_whole and folder is None:
        raise SourceNotFound("the config was given as text, without assets_uri", where=path)
    uri = path if is_whole else f"{(folder or '').rstrip('/')}/{path}"
    named = NamedUri(field="feature_configs", uri=uri, is_output=False).require_sound()
    places.require_config_file(named, folder)
    return read_uri(uri, limit=limit)
