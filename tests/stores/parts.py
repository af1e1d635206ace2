"""Open stores that upload in small parts, so that a few megabytes are several parts."""

from exporter.storage.open import open_store
from exporter.storage.store import ArtifactStore


def store_in_parts(uri: str, part_size: int) -> ArtifactStore:
    """Open the store of a URI, with parts of another size."""
    from exporter.storage.azure_store import AzureStore, make_store
    from exporter.storage.google_store import GoogleStore
    from exporter.storage.object_store import ObjectStore
    from exporter.storage.settings import AzureSettings

    store = open_store(uri)
    bucket, _, prefix = uri.partition("://")[2].partition("/")
    if isinstance(store, AzureStore):
        return make_store(bucket, prefix, AzureSettings(), part_size)
    assert isinstance(store, GoogleStore | ObjectStore)
    return type(store)(store._client, bucket, prefix, part_size=part_size)
