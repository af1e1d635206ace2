"""Write a small file of an artifact, such as its manifest, once, while the writer may."""

import logging
import time

from exporter.errors import AlreadyPublished, StorageError
from exporter.storage.store import ArtifactStore, Permission

log = logging.getLogger(__name__)

_TRIES = 5  # each takes no longer than the permission to write lasts
_PAUSE_S = 0.5  # before the second try; before the third twice as long, and so on


def put_once(store: ArtifactStore, key: str, text: bytes, permission: Permission) -> None:
    """Write a small file within the permitted time; a request that timed out may have written it."""
    for left in reversed(range(_TRIES)):
        within = permission()  # listing the artifact, or an earlier try, may have taken long
        try:
            store.put_bytes(text, key, within=within)
            return
        except AlreadyPublished:
            if left == _TRIES - 1 or store.read(key) != text:
                raise
            return
        except StorageError as error:
            if not error.retryable or not left:
                raise
            log.warning("manifest_not_written", exc_info=True, extra={"key": key})
            time.sleep(_PAUSE_S * (_TRIES - left))
