"""A store in a bucket of Google Cloud Storage, by Google's own library.

Credentials come from where Google's tools find them (GOOGLE_APPLICATION_CREDENTIALS, gcloud, the metadata
server), and so does the address of an emulator (STORAGE_EMULATOR_HOST). The permissions it needs are those of
the role Storage Object User: storage.objects.get, list, create and delete.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, BinaryIO

from exporter.errors import StorageError
from exporter.storage.cloud_store import (
    ANSWER_S,
    CONNECT_S,
    CloudStore,
    already_published,
    not_installed,
    refused,
    replaced,
    split_bucket,
    unreachable,
)
from exporter.storage.settings import GoogleSettings
from exporter.storage.store import StoredFile

try:
    import google.auth
    from google.api_core.exceptions import GoogleAPICallError, PreconditionFailed, RetryError
    from google.auth.credentials import AnonymousCredentials
    from google.auth.exceptions import DefaultCredentialsError, GoogleAuthError, TransportError
    from google.auth.transport.requests import AuthorizedSession
    from google.cloud import storage
    from google.cloud.storage.exceptions import DataCorruption, InvalidResponse
    from google.cloud.storage.retry import DEFAULT_RETRY
    from requests import RequestException
except ImportError as error:
    raise not_installed("gs", error) from error

if TYPE_CHECKING:
    from google.auth.credentials import Credentials
    from google.cloud.storage import Blob

_SCHEME = "gs"
_NAMES = re.compile(r"[a-z0-9][a-z0-9._-]{1,220}[a-z0-9]")
_TOKEN = "slipway-write"  # metadata key by which a write recognises its own object
_SCOPES = ("https://www.googleapis.com/auth/devstorage.read_write",)
_STEP = 256 << 10  # parts of an upload are multiples of this many bytes, by the protocol
_TIMES = (CONNECT_S, ANSWER_S)
_NO_OBJECT = 0  # the generation that says: only if there is none


class _Client(storage.Client):  # type: ignore[misc]  # has no types
    """A client that does not ask for a bucket's place in a thread: a process that forks must have none."""

    def __init__(self, **given: object) -> None:
        super().__init__(**given)
        self._bucket_metadata_cache = None


class GoogleStore(CloudStore):
    """Stores files below a prefix of a bucket; the version of a file is its generation."""

    scheme = _SCHEME

    def __init__(
        self, client: "storage.Client", bucket: str, prefix: str = "", *, part_size: int | None = None
    ) -> None:
        super().__init__(bucket, prefix, part_size=part_size)
        self._part_size = -(-self._part_size // _STEP) * _STEP
        self._client = client

    def link(self, key: str, lifetime: timedelta, endpoint: str | None = None) -> str | None:
        try:
            return str(self._blob(self._path(key)).generate_signed_url(version="v4", expiration=lifetime))
        except (AttributeError, GoogleAuthError):  # only a service account's own key signs
            return None

    def _blob(self, path: str) -> "Blob":
        return self._client.bucket(self._bucket).blob(path)

    def _describe(self, path: str, key: str) -> StoredFile:
        blob = self._blob(path)
        blob.reload(timeout=_TIMES)
        token = (blob.metadata or {}).get(_TOKEN, "")
        return StoredFile(key=key, size=blob.size, version=str(blob.generation), token=token)

    def _read_once(self, path: str, start: int, end: int, version: str) -> bytes:
        try:
            data: bytes = self._blob(path).download_as_bytes(
                start=start,
                end=end - 1,
                raw_download=True,  # as stored, whatever encoding the object names
                if_generation_match=int(version),
                timeout=_TIMES,
                checksum=None,  # a range has none
            )
        except PreconditionFailed as error:
            raise replaced(f"{_SCHEME}://{self._bucket}/{path}") from error
        return data

    def _list_below(self, prefix: str) -> Iterator[tuple[str, int, str]]:
        fields = "items(name,size,generation),nextPageToken"
        for blob in self._client.list_blobs(self._bucket, prefix=prefix, fields=fields, timeout=_TIMES):
            yield blob.name, blob.size, str(blob.generation)

    def _create(self, path: str, source: BinaryIO, size: int, token: str, within: timedelta | None) -> None:
        blob = self._blob(path)
        blob.metadata = {_TOKEN: token}
        sending: dict[str, Any] = {
            "content_type": "application/octet-stream",
            "if_generation_match": _NO_OBJECT,
            "checksum": "crc32c",
            **_limits(within),
        }
        if size <= self._part_size or within is not None:
            blob.upload_from_string(source.read(size), **sending)
        else:
            blob.chunk_size = self._part_size
            blob.upload_from_file(source, size=size, **sending)

    def _remove(self, path: str, within: timedelta | None) -> None:
        self._blob(path).delete(**_limits(within))

    @contextmanager
    def _translate_errors(self, uri: str) -> Iterator[None]:
        with _translate_errors(uri):
            yield


def _limits(within: timedelta | None) -> dict[str, Any]:
    """Return how long each request may take, and whether it is repeated."""
    if within is None:
        return {"timeout": _TIMES, "retry": DEFAULT_RETRY}  # what it repeats is safe: it has a condition
    seconds = within.total_seconds()
    return {"timeout": (0.3 * seconds, 0.6 * seconds), "retry": None}


def open_uri(uri: str) -> GoogleStore:
    """Open the store of `gs://bucket/prefix`."""
    bucket, prefix = split_bucket(uri, _SCHEME, _NAMES)
    with _translate_errors(uri):
        if GoogleSettings().storage_emulator_host:
            credentials: Credentials = AnonymousCredentials()  # type: ignore[no-untyped-call]  # has no types
        else:
            credentials, _ = google.auth.default(scopes=_SCOPES)
        session = AuthorizedSession(credentials)  # type: ignore[no-untyped-call]  # has no types
        session.max_redirects = (
            0  # the service never sends any; one could lead to the machine's own addresses
        )
        return GoogleStore(_Client(project=None, credentials=credentials, _http=session), bucket, prefix)


@contextmanager
def _translate_errors(uri: str) -> Iterator[None]:
    try:
        yield
    except DefaultCredentialsError as error:
        hint = "set GOOGLE_APPLICATION_CREDENTIALS, or give the machine or pod a service account"
        raise StorageError(f"{uri}: {error}", hint=hint, where=uri, retryable=False) from error
    except PreconditionFailed as error:  # of a write: that there is no object
        raise already_published(uri) from error
    except GoogleAPICallError as error:
        raise refused(uri, int(error.code or 0), error.message) from error
    except InvalidResponse as error:  # of a part of an upload
        if (status := int(error.response.status_code)) == HTTPStatus.PRECONDITION_FAILED:
            raise already_published(uri) from error
        raise refused(uri, status, str(error)) from error
    except GoogleAuthError as error:
        raise unreachable(uri, error, retryable=isinstance(error, TransportError)) from error
    except (RequestException, RetryError, DataCorruption, ConnectionError) as error:
        raise unreachable(uri, error) from error
    except ValueError as error:  # an emulator's address that is no URL, credentials that are no JSON
        raise unreachable(uri, error, retryable=False) from error
