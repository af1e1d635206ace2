"""A store in a container of Azure Blob Storage, by Azure's own library: `az://container/prefix`.

The account, and its key or token if it has one, come from the variables of Azure's command line; without
key and token, credentials come from where Azure's tools find them (`DefaultAzureCredential`: environment,
workload identity, managed identity, `az login`). The role it needs is Storage Blob Data Contributor.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, BinaryIO

from exporter.errors import StorageError
from exporter.storage.cloud_store import (
    ANSWER_S,
    CONNECT_S,
    PART_SIZE,
    CloudStore,
    already_published,
    not_installed,
    refused,
    replaced,
    split_bucket,
    unreachable,
)
from exporter.storage.settings import AzureSettings
from exporter.storage.store import StoredFile

try:
    from azure.core import MatchConditions
    from azure.core.exceptions import (
        AzureError,
        ClientAuthenticationError,
        HttpResponseError,
        ResourceModifiedError,
    )
    from azure.identity import DefaultAzureCredential
    from azure.storage.blob import (
        BlobClient,
        BlobSasPermissions,
        ContainerClient,
        StorageErrorCode,
        generate_blob_sas,
    )
except ImportError as error:
    raise not_installed("az", error) from error

_SCHEME = "az"
_NAMES = re.compile(r"\$(root|web)|[a-z0-9](?:-?[a-z0-9]){2,62}")
_TOKEN = "slipway_write"  # metadata key by which a write recognises its own blob
_ADVICE = "set AZURE_STORAGE_ACCOUNT, and AZURE_STORAGE_KEY or the variables of an identity"


class AzureStore(CloudStore):
    """Stores files below a prefix of a container; the version of a file is its entity tag."""

    scheme = _SCHEME

    def __init__(self, container: ContainerClient, prefix: str = "", *, part_size: int | None = None) -> None:
        super().__init__(container.container_name, prefix, part_size=part_size)
        self._container = container

    def link(self, key: str, lifetime: timedelta, endpoint: str | None = None) -> str | None:
        account_key = getattr(self._container.credential, "account_key", None)
        if account_key is None:  # the service would have to be asked for a key that signs
            return None
        blob = self._blob(self._path(key))
        signature = generate_blob_sas(
            account_name=str(blob.account_name),
            container_name=self._bucket,
            blob_name=blob.blob_name,
            account_key=account_key,
            permission=BlobSasPermissions(read=True),
            expiry=datetime.now(UTC) + lifetime,
        )
        return f"{blob.url}?{signature}"

    def _blob(self, path: str) -> BlobClient:
        return self._container.get_blob_client(path)

    def _describe(self, path: str, key: str) -> StoredFile:
        found = self._blob(path).get_blob_properties()
        token = (found.metadata or {}).get(_TOKEN, "")
        return StoredFile(key=key, size=found.size, version=_plain(found.etag), token=token)

    def _read_once(self, path: str, start: int, end: int, version: str) -> bytes:
        try:
            return (
                self._blob(path)
                .download_blob(
                    offset=start,
                    length=end - start,
                    etag=f'"{version}"',
                    match_condition=MatchConditions.IfNotModified,
                    max_concurrency=1,
                )
                .readall()
            )
        except ResourceModifiedError as error:
            raise replaced(f"{_SCHEME}://{self._bucket}/{path}") from error

    def _list_below(self, prefix: str) -> Iterator[tuple[str, int, str]]:
        for blob in self._container.list_blobs(name_starts_with=prefix):
            yield blob.name, blob.size, _plain(blob.etag)

    def _create(self, path: str, source: BinaryIO, size: int, token: str, within: timedelta | None) -> None:
        self._blob(path).upload_blob(
            source if size > self._part_size else source.read(size),
            length=size,
            metadata={_TOKEN: token},
            overwrite=False,
            max_concurrency=1,
            **_limits(within),
        )

    def _remove(self, path: str, within: timedelta | None) -> None:
        self._blob(path).delete_blob(**_limits(within))

    @contextmanager
    def _translate_errors(self, uri: str) -> Iterator[None]:
        with _translate_errors(uri):
            yield


def _limits(within: timedelta | None) -> dict[str, Any]:
    """Return how long a request may take, where it has to be the only one."""
    if within is None:
        return {}
    seconds = within.total_seconds()
    return {"connection_timeout": 0.3 * seconds, "read_timeout": 0.6 * seconds, "retry_total": 0}


def _plain(etag: str) -> str:
    """Return an entity tag without the quotes, which lists leave out."""
    return etag.strip('"')


def open_uri(uri: str) -> AzureStore:
    """Open the store of `az://container/prefix`."""
    container, prefix = split_bucket(uri, _SCHEME, _NAMES)
    with _translate_errors(uri):
        return make_store(container, prefix, AzureSettings())


def make_store(
    container: str, prefix: str, settings: AzureSettings, part_size: int = PART_SIZE
) -> AzureStore:
    """Open a container of the account that the settings name.

    Raises:
        StorageError: they name none.
    """
    options: dict[str, Any] = {
        "connection_timeout": CONNECT_S,
        "read_timeout": ANSWER_S,
        "retry_total": 5,
        "initial_backoff": 1,
        "increment_base": 2,
        "permit_redirects": False,
        "max_single_put_size": part_size,
        "max_block_size": part_size,
        # Above the size of a block, the library reads a block before it sends it: a source that fails is then
        # not mistaken for a connection that does.
        "min_large_block_upload_threshold": part_size + 1,
    }
    if settings.connection_string is not None:
        text = settings.connection_string.get_secret_value()
        client = ContainerClient.from_connection_string(text, container, **options)
    else:
        if not (url := settings.account_url):
            uri = f"{_SCHEME}://{container}"
            raise StorageError(f"{uri}: no account is named", hint=_ADVICE, where=uri, retryable=False)
        credential = settings.secret or DefaultAzureCredential(exclude_interactive_browser_credential=True)
        client = ContainerClient(url, container, credential=credential, **options)
    return AzureStore(client, prefix, part_size=part_size)


@contextmanager
def _translate_errors(uri: str) -> Iterator[None]:
    try:
        yield
    except HttpResponseError as error:
        if error.status_code is None:
            retryable = not isinstance(error, ClientAuthenticationError)
            raise unreachable(uri, error, retryable=retryable) from error
        if getattr(error, "error_code", None) == StorageErrorCode.BLOB_ALREADY_EXISTS:
            raise already_published(uri) from error
        raise refused(uri, error.status_code, error.message) from error
    except AzureError as error:
        raise unreachable(uri, error) from error
    except ValueError as error:  # a connection string or a key that cannot be read
        raise unreachable(uri, error, retryable=False) from error
