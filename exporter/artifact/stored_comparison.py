"""The comparison of an artifact with an earlier release, as it lies beside the manifest."""

from pydantic import ValidationError

from exporter.artifact.read import describe_first_error
from exporter.errors import InvalidArtifact, SourceNotFound
from exporter.reports.comparison import DIFF_NAME, Comparison
from exporter.storage.store import ArtifactStore

_LARGEST = 8 << 20  # bytes


def read_comparison(store: ArtifactStore) -> Comparison | None:
    """Read the comparison in an artifact's store; None if there is none.

    Raises:
        InvalidArtifact: the file there is no comparison.
        StorageError: it cannot be read, or is too large to be one.
    """
    try:
        return Comparison.model_validate_json(store.read(DIFF_NAME, limit=_LARGEST))
    except SourceNotFound:
        return None
    except ValidationError as error:
        where = store.uri_of(DIFF_NAME)
        raise InvalidArtifact(
            f"{where} is not a comparison that this version reads: {describe_first_error(error)}", where=where
        ) from error
