"""Manifests of published jobs, read once: they never change."""

from functools import lru_cache, partial

from exporter.artifact.read import read_manifest
from exporter.manifest import Manifest
from exporter.storage.places import Places

_KEPT = 256


@lru_cache(maxsize=_KEPT)
def read_once(uri: str, places: Places, output_uri: str) -> Manifest:
    """Return the manifest at `uri`, in the output of a job that may use these places.

    Raises:
        ExportError: it cannot be read, or is none.
    """
    return read_manifest(uri, opened=partial(places.open_output, output_uri))
