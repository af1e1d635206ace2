"""The comparison of an artifact with an earlier one, beside its manifest."""

import contextlib

from pydantic import ValidationError

from exporter.artifact.read import describe_first_error, root_of
from exporter.errors import AlreadyPublished, InvalidArtifact, SourceNotFound
from exporter.reports.comparison import DIFF_NAME, Comparison
from exporter.storage.open import Opener, open_store


def publish_diff(comparison: Comparison, artifact_uri: str, *, opened: Opener = open_store) -> str:
    """Write the comparison beside the manifest of its newer artifact; return the URI.

    What an earlier attempt of the same job has written stays.
    """
    store = opened(root_of(artifact_uri))
    with contextlib.suppress(AlreadyPublished):
        store.put_bytes(comparison.model_dump_json().encode(), DIFF_NAME)
    return store.uri_of(DIFF_NAME)


def read_diff(artifact_uri: str, *, opened: Opener = open_store) -> Comparison | None:
    """Read the comparison beside an artifact's manifest; None if there is none.

    Raises:
        InvalidArtifact: the file there is no comparison.
        StorageError: it cannot be read, or is too large to be one.
    """
    store = opened(root_of(artifact_uri))
    try:
        return Comparison.model_validate_json(store.read(DIFF_NAME))
    except SourceNotFound:
        return None
    except ValidationError as error:
        where = store.uri_of(DIFF_NAME)
        raise InvalidArtifact(
            f"{where} is not a comparison that this version reads: {describe_first_error(error)}", where=where
        ) from error
