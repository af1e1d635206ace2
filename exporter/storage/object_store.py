"""A store in an S3 bucket, or in any server that speaks the S3 protocol.

Endpoint, region and credentials come from boto3's own sources (environment, config file, instance role).
The permissions it needs: GetObject, PutObject, DeleteObject, ListBucket, AbortMultipartUpload,
ListMultipartUploadParts and ListBucketMultipartUploads.
"""

import logging
import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, BinaryIO, ClassVar, cast
from urllib.parse import urlsplit
from uuid import uuid4

import botocore.session
from botocore.config import Config
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    IncompleteReadError,
    NoCredentialsError,
    ParamValidationError,
    PartialCredentialsError,
    ReadTimeoutError,
    ResponseStreamingError,
)
from botocore.loaders import create_loader

from exporter.errors import AlreadyPublished, ExportError, InvalidSpec, SourceNotFound, StorageError
from exporter.storage.range_reader import RangeReader
from exporter.storage.store import (
    CHUNK_SIZE,
    ArtifactStore,
    OnSent,
    Permission,
    StoredFile,
    always,
    as_permitted,
    check_key,
    check_prefix,
    count_listed,
    ignore_sent,
)

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client
    from mypy_boto3_s3.type_defs import CompletedPartTypeDef

PART_SIZE = 32 << 20  # bytes; larger files are uploaded in parts, one of which is held in memory
MAX_PARTS = 10_000  # parts of one upload, by the protocol

_TRIES = 5  # of a request that is repeated here, because each try needs a new permission or a new connection
# Tries of any other request. botocore waits at most 50 ms after the first and twice as long after each later
# one, so that a store may be away for some seconds; twenty times as long if the store answers "slow down".
_CALLS = 9
_PAUSE_S = 0.5  # seconds before the second of `_TRIES`; half a second more before each further one
_TOKEN = "slipway-write"  # metadata key by which a write recognises its own object
EXISTS = "FileAlreadyExists"  # the code of OSS, with status 409, where S3 says 412
_RETRYABLE_CODES = {"ExpiredToken", "RequestTimeout", "SlowDown", "ThrottlingException"}
_RETRYABLE_STATUS = {408, 409, 429}  # 409: another write to the same key is in progress
_BROKEN_OFF = (
    IncompleteReadError,
    ReadTimeoutError,
    ResponseStreamingError,
)  # the connection broke within the body of an answer
_NEVER_RETRYABLE = (NoCredentialsError, PartialCredentialsError, ParamValidationError)

# Service descriptions, shared by all clients: reading S3's takes more than a tenth of a second, most of the
# time that it takes to create a client.
_DESCRIPTIONS = create_loader()

log = logging.getLogger(__name__)


class ObjectStore(ArtifactStore):
    """Stores files below a prefix of a bucket."""

    scheme: ClassVar[str] = "s3"
    # Parameters of a write by which the store refuses a key that exists.
    only_if_new: ClassVar[Mapping[str, Any]] = {"IfNoneMatch": "*"}

    def __init__(
        self, client: "S3Client", bucket: str, prefix: str = "", *, part_size: int = PART_SIZE
    ) -> None:
        self._client = client
        self._bucket = bucket
        self._root = f"{prefix}/" if prefix else ""
        self._part_size = part_size

    def make_client(self, endpoint: str | None = None, *, within: timedelta | None = None) -> "S3Client":
        """Create a client as the store's own, of another endpoint or one that tries once, within a time."""
        return create_client(make_config(within), endpoint)

    def uri_of(self, key: str) -> str:
        return f"{self.scheme}://{self._bucket}/{self._root}{key}".rstrip("/")

    def stat(self, key: str) -> StoredFile:
        with translate_errors(self.uri_of(key)):
            found = self._client.head_object(Bucket=self._bucket, Key=self._path(key))
        token = found["Metadata"].get(_TOKEN, "")
        return StoredFile(key=key, size=found["ContentLength"], version=found["ETag"], token=token)

    def link(self, key: str, lifetime: timedelta, endpoint: str | None = None) -> str | None:
        with translate_errors(self.uri_of(key)):
            # The signature covers the host, so a client of that endpoint has to sign.
            client = self.make_client(endpoint) if endpoint else self._client
            return client.generate_presigned_url(
                "get_object",
                Params={"Bucket": self._bucket, "Key": self._path(key)},
                ExpiresIn=int(lifetime.total_seconds()),
            )

    def chunks(self, key: str) -> Iterator[bytes]:
        with translate_errors(self.uri_of(key)):
            response = self._client.get_object(Bucket=self._bucket, Key=self._path(key))
            with closing(response["Body"]) as body:  # `with body` would skip its check of the length
                yield from body.iter_chunks(CHUNK_SIZE)

    def open_file(self, key: str) -> BinaryIO:
        return cast("BinaryIO", RangeReader(partial(self._read_range, key), self.size(key)))

    def _read_range(self, key: str, start: int, end: int) -> bytes:
        """Return the bytes from `start` up to `end`; ask again where fewer of them come."""
        with translate_errors(self.uri_of(key)):
            for tries_left in reversed(range(_TRIES)):
                response = self._client.get_object(
                    Bucket=self._bucket, Key=self._path(key), Range=f"bytes={start}-{end - 1}"
                )
                try:
                    with closing(response["Body"]) as body:
                        data = body.read()
                    if len(data) == end - start:
                        return data
                    if not tries_left:
                        raise _too_short(self.uri_of(key), len(data), end - start)
                except _BROKEN_OFF:
                    if not tries_left:
                        raise
                time.sleep(_PAUSE_S * (_TRIES - tries_left))
        raise AssertionError("the last try returns or raises")

    def list(self, prefix: str = "", *, follow_links: bool = False) -> tuple[StoredFile, ...]:
        pages = self._client.get_paginator("list_objects_v2")
        with translate_errors(self.uri_of(prefix)):
            entries = (
                entry
                for page in pages.paginate(Bucket=self._bucket, Prefix=self._folder(prefix))
                for entry in page.get("Contents", ())
            )
            return tuple(
                sorted(
                    StoredFile(
                        key=entry["Key"].removeprefix(self._root), size=entry["Size"], version=entry["ETag"]
                    )
                    for entry in count_listed(entries, self.uri_of(prefix))
                    if not entry["Key"].endswith("/")  # markers that some programs leave for folders
                )
            )

    def write(self, source: BinaryIO, size: int, key: str, on_sent: OnSent = ignore_sent) -> None:
        if self.exists(key):  # saves the upload of a large file; the condition on the write decides
            raise _already_published(self.uri_of(key))
        token = uuid4().hex
        with translate_errors(self.uri_of(key)):
            try:
                if size <= self._part_size:
                    self._write_whole(source, size, self._path(key), token, on_sent)
                else:
                    self._write_parts(source, size, self._path(key), token, on_sent)
            except ClientError as error:
                if not self._was_written(error, key, token):
                    raise

    def put_bytes(self, data: bytes, key: str, *, within: timedelta | None = None) -> None:
        if within is None:
            return super().put_bytes(data, key)
        with translate_errors(self.uri_of(key)):
            # Send bytes, because for a stream boto3 first asks whether the store expects them.
            self.make_client(within=within).put_object(
                Bucket=self._bucket, Key=self._path(key), Body=data, **self.only_if_new
            )
        return None

    def delete(self, key: str, permission: Permission = always) -> None:
        path = self._path(key)
        self._as_permitted(
            permission, self.uri_of(key), lambda client: client.delete_object(Bucket=self._bucket, Key=path)
        )

    def delete_prefix(self, prefix: str, permission: Permission = always) -> None:
        for file in self.list(check_key(prefix)):
            self.delete(file.key, permission)
        for path, upload in self._uploads(prefix):
            abort = partial(self._abort_by, path=path, upload=upload)
            with suppress(SourceNotFound):  # already aborted, perhaps by a try whose answer was lost
                self._as_permitted(permission, self.uri_of(prefix), abort)

    def _uploads(self, prefix: str) -> tuple[tuple[str, str], ...]:
        """Return path and id of every multipart upload that was never completed."""
        pages = self._client.get_paginator("list_multipart_uploads")
        with translate_errors(self.uri_of(prefix)):
            return tuple(
                (upload["Key"], upload["UploadId"])
                for page in pages.paginate(Bucket=self._bucket, Prefix=self._folder(prefix))
                for upload in page.get("Uploads", ())
            )

    def _abort_by(self, client: "S3Client", path: str, upload: str) -> None:
        client.abort_multipart_upload(Bucket=self._bucket, Key=path, UploadId=upload)

    def _as_permitted(self, permission: Permission, uri: str, act: "Callable[[S3Client], object]") -> None:
        """Ask for permission before each try of `act`; let the client retry if permission has no end."""

        def send(within: timedelta | None) -> None:
            with translate_errors(uri):
                act(self._client if within is None else self.make_client(within=within))

        as_permitted(permission, send)

    def _path(self, key: str) -> str:
        return self._root + check_key(key)

    def _folder(self, prefix: str) -> str:
        return f"{self._path(prefix)}/" if check_prefix(prefix) else self._root

    def _write_whole(self, source: BinaryIO, size: int, path: str, token: str, on_sent: OnSent) -> None:
        self._client.put_object(
            Bucket=self._bucket,
            Key=path,
            Body=source,
            ContentLength=size,
            Metadata={_TOKEN: token},
            **self.only_if_new,
        )
        on_sent(size)

    def _write_parts(self, source: BinaryIO, size: int, path: str, token: str, on_sent: OnSent) -> None:
        upload = self._client.create_multipart_upload(
            Bucket=self._bucket, Key=path, Metadata={_TOKEN: token}
        )["UploadId"]
        try:
            parts = list(self._send_parts(source, size, path, upload, on_sent))
            self._client.complete_multipart_upload(
                Bucket=self._bucket,
                Key=path,
                UploadId=upload,
                MultipartUpload={"Parts": parts},
                **self.only_if_new,
            )
        except BaseException:  # otherwise the store would keep, and bill, the parts that were sent
            self._abort(path, upload)
            raise

    def _send_parts(
        self, source: BinaryIO, size: int, path: str, upload: str, on_sent: OnSent
    ) -> "Iterator[CompletedPartTypeDef]":
        part_size = max(self._part_size, math.ceil(size / MAX_PARTS))
        for number, start in enumerate(range(0, size, part_size), start=1):
            part = source.read(min(part_size, size - start))
            sent = self._client.upload_part(
                Bucket=self._bucket, Key=path, UploadId=upload, PartNumber=number, Body=part
            )
            on_sent(len(part))
            yield {"ETag": sent["ETag"], "PartNumber": number}

    def _abort(self, path: str, upload: str) -> None:
        try:
            self._client.abort_multipart_upload(Bucket=self._bucket, Key=path, UploadId=upload)
        except (BotoCoreError, ClientError):
            log.warning("upload_not_aborted", exc_info=True, extra={"key": path, "upload": upload})

    def _was_written(self, error: ClientError, key: str, token: str) -> bool:
        """Return whether this write succeeded although its last request was refused.

        boto3 repeats a request whose answer was lost; the second one then finds that the object exists, or
        that the upload is gone, because the first one succeeded.
        """
        if (_status(error) not in (404, 412) and _code(error) != EXISTS) or not self.exists(key):
            return False
        head = self._client.head_object(Bucket=self._bucket, Key=self._path(key))
        return head["Metadata"].get(_TOKEN) == token


def open_uri(uri: str) -> ObjectStore:
    """Open the store of `s3://bucket/prefix`."""
    bucket, _, prefix = uri.removeprefix("s3://").partition("/")
    if not uri.startswith("s3://") or not bucket:
        raise InvalidSpec(f"{uri!r} names no bucket", hint="write s3://bucket/prefix", where=uri)
    return ObjectStore(create_client(make_config()), bucket, check_prefix(prefix.rstrip("/")))


def make_config(within: timedelta | None = None) -> Config:
    """Return the settings of a client that gives up within minutes, after several tries.

    With `within`, it gives up after one try and that time. Checksums are off unless the protocol requires
    them: many stores other than AWS refuse them, and digests are compared after every upload anyway.
    """
    config = Config(
        connect_timeout=10,
        read_timeout=60,
        retries={"mode": "standard", "total_max_attempts": _CALLS},
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
        tcp_keepalive=True,
    )
    if within is None:
        return config
    connect, answer = (share * within.total_seconds() for share in (0.3, 0.6))
    return config.merge(
        Config(connect_timeout=connect, read_timeout=answer, retries={"total_max_attempts": 1})
    )


def make_session() -> botocore.session.Session:
    session = botocore.session.get_session()
    session.register_component("data_loader", _DESCRIPTIONS)
    return session


def create_client(config: Config, endpoint: str | None = None) -> "S3Client":
    """Create a client with boto3's own endpoint, region and credentials.

    Stores other than AWS are addressed by path, not by a host name per bucket, unless the AWS config file
    sets `addressing_style`.
    """
    session = make_session()
    with translate_errors("s3://"):
        client = cast("S3Client", session.create_client("s3", config=config, endpoint_url=endpoint))
        if _is_aws(client.meta.endpoint_url) or _has_addressing_style(client):
            return client
        by_path = config.merge(Config(s3={"addressing_style": "path"}))
        return cast("S3Client", session.create_client("s3", config=by_path, endpoint_url=endpoint))


def _is_aws(endpoint: str) -> bool:
    return (urlsplit(endpoint).hostname or "").endswith((".amazonaws.com", ".amazonaws.com.cn"))


def _has_addressing_style(client: "S3Client") -> bool:
    settings: dict[str, object] | None = getattr(client.meta.config, "s3", None)
    return bool(settings and settings.get("addressing_style"))


def _too_short(uri: str, came: int, asked: int) -> StorageError:
    return StorageError(f"{uri}: {came} bytes came where {asked} were asked for", hint="try again", where=uri)


def _already_published(uri: str) -> AlreadyPublished:
    return AlreadyPublished(f"{uri} exists; a key is never overwritten", where=uri)


@contextmanager
def translate_errors(uri: str) -> Iterator[None]:
    """Convert boto3's errors on `uri` into the exporter's errors."""
    try:
        yield
    except ClientError as error:
        raise _from_answer(error, uri) from error
    except BotoCoreError as error:
        can_retry = not isinstance(error, _NEVER_RETRYABLE)
        raise StorageError(f"{uri}: {error}", where=uri, retryable=can_retry) from error
    except RecursionError as error:  # boto3 asks a server that redirects for the region, which redirects
        raise StorageError(f"{uri}: redirected without end", where=uri, retryable=False) from error
    except ValueError as error:  # raised by boto3 for an endpoint that is no URL
        raise StorageError(f"{uri}: {error}", where=uri, retryable=False) from error


def _from_answer(error: ClientError, uri: str) -> ExportError:
    status = _status(error)
    code = _code(error)
    if status == 412 or code == EXISTS:
        return _already_published(uri)
    if status == 404:
        return SourceNotFound(f"there is no {uri}", where=uri)
    if status >= 500 or status in _RETRYABLE_STATUS or code in _RETRYABLE_CODES:
        return StorageError(f"{uri}: {error}", where=uri)
    hint = "check the credentials and what they allow" if status in (401, 403) else ""
    return StorageError(f"{uri}: {error}", hint=hint, where=uri, retryable=False)


def _code(error: ClientError) -> str:
    return error.response.get("Error", {}).get("Code", "")


def _status(error: ClientError) -> int:
    return int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
