"""A store in an S3 bucket, or in any server that speaks the S3 protocol.

Endpoint, region and credentials come from boto3's own sources (environment, config file, instance role).
The permissions it needs: GetObject, PutObject, DeleteObject, ListBucket, AbortMultipartUpload,
ListMultipartUploadParts and ListBucketMultipartUploads.
"""

import logging
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any, BinaryIO, ClassVar, cast
from urllib.parse import urlsplit

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

from exporter.errors import ExportError, InvalidSpec, SourceNotFound, StorageError
from exporter.storage.cloud_store import (
    TRIES,
    CloudStore,
    already_published,
    pause_before,
    replaced,
)
from exporter.storage.store import CHUNK_SIZE, Permission, StoredFile, always, as_permitted, check_prefix

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client
    from mypy_boto3_s3.type_defs import CompletedPartTypeDef

MAX_PARTS = 10_000  # parts of one upload, by the protocol

# Tries of a request by botocore, which waits at most 50 ms after the first and twice as long after each later
# one, so that a store may be away for some seconds; twenty times as long if the store answers "slow down".
_CALLS = 9
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


class ObjectStore(CloudStore):
    """Stores files below a prefix of a bucket; the version of a file is its entity tag."""

    scheme = "s3"
    # Parameters of a write by which the store refuses a key that exists.
    only_if_new: ClassVar[Mapping[str, Any]] = {"IfNoneMatch": "*"}

    def __init__(
        self, client: "S3Client", bucket: str, prefix: str = "", *, part_size: int | None = None
    ) -> None:
        super().__init__(bucket, prefix, part_size=part_size)
        self._client = client

    def make_client(self, endpoint: str | None = None, *, within: timedelta | None = None) -> "S3Client":
        """Create a client as the store's own, of another endpoint or one that tries once, within a time."""
        return create_client(make_config(within), endpoint)

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
        """Yield the bytes of one version of a file; an answer that breaks off is continued where it ended."""
        rest: dict[str, Any] = {}  # of the request after an answer that broke off
        sent = 0
        with translate_errors(self.uri_of(key), if_not_met=replaced):
            for tries_left in reversed(range(TRIES)):
                response = self._client.get_object(Bucket=self._bucket, Key=self._path(key), **rest)
                try:
                    with closing(response["Body"]) as body:  # `with body` would skip its check of the length
                        for chunk in body.iter_chunks(CHUNK_SIZE):
                            sent += len(chunk)
                            yield chunk
                    return
                except _BROKEN_OFF:
                    if not tries_left:
                        raise
                    rest = {"Range": f"bytes={sent}-", "IfMatch": response["ETag"]}
                pause_before(tries_left)

    def _describe(self, path: str, key: str) -> StoredFile:
        found = self._client.head_object(Bucket=self._bucket, Key=path)
        token = found["Metadata"].get(_TOKEN, "")
        return StoredFile(key=key, size=found["ContentLength"], version=found["ETag"], token=token)

    def _read_once(self, path: str, start: int, end: int, version: str) -> bytes:
        with translate_errors(self.uri_of(path.removeprefix(self._root)), if_not_met=replaced):
            response = self._client.get_object(
                Bucket=self._bucket, Key=path, Range=f"bytes={start}-{end - 1}", IfMatch=version
            )
            try:
                with closing(response["Body"]) as body:
                    return body.read()
            except _BROKEN_OFF:
                return b""

    def _list_below(self, prefix: str) -> Iterator[tuple[str, int, str]]:
        pages = self._client.get_paginator("list_objects_v2")
        for page in pages.paginate(Bucket=self._bucket, Prefix=prefix):
            for entry in page.get("Contents", ()):
                yield entry["Key"], entry["Size"], entry["ETag"]

    def _create(self, path: str, source: BinaryIO, size: int, token: str, within: timedelta | None) -> None:
        if within is not None:
            # Send bytes, because for a stream boto3 first asks whether the store expects them.
            self._put(self.make_client(within=within), path, source.read(size), size, token)
        elif size <= self._part_size:
            self._write_whole(source, size, path, token)
        else:
            self._write_parts(source, size, path, token)

    def _remove(self, path: str, within: timedelta | None) -> None:
        self._client_within(within).delete_object(Bucket=self._bucket, Key=path)

    def _translate_errors(self, uri: str) -> AbstractContextManager[None]:
        return translate_errors(uri)

    def delete_prefix(self, prefix: str, permission: Permission = always) -> None:
        """Delete the files of a folder, and end its uploads that were never completed."""
        super().delete_prefix(prefix, permission)
        for path, upload in self._uploads(prefix):

            def abort(within: timedelta | None, path: str = path, upload: str = upload) -> None:
                # It may be aborted already, perhaps by a try whose answer was lost.
                with suppress(SourceNotFound), translate_errors(self.uri_of(prefix)):
                    self._client_within(within).abort_multipart_upload(
                        Bucket=self._bucket, Key=path, UploadId=upload
                    )

            as_permitted(permission, abort)

    def _uploads(self, prefix: str) -> tuple[tuple[str, str], ...]:
        """Return path and id of every multipart upload that was never completed."""
        pages = self._client.get_paginator("list_multipart_uploads")
        with translate_errors(self.uri_of(prefix)):
            return tuple(
                (upload["Key"], upload["UploadId"])
                for page in pages.paginate(Bucket=self._bucket, Prefix=self._folder(prefix))
                for upload in page.get("Uploads", ())
            )

    def _client_within(self, within: timedelta | None) -> "S3Client":
        return self._client if within is None else self.make_client(within=within)

    def _put(self, client: "S3Client", path: str, body: BinaryIO | bytes, size: int, token: str) -> None:
        client.put_object(
            Bucket=self._bucket,
            Key=path,
            Body=body,
            ContentLength=size,
            Metadata={_TOKEN: token},
            **self.only_if_new,
        )

    def _write_whole(self, source: BinaryIO, size: int, path: str, token: str) -> None:
        self._put(self._client, path, source, size, token)

    def _write_parts(self, source: BinaryIO, size: int, path: str, token: str) -> None:
        upload = self._client.create_multipart_upload(
            Bucket=self._bucket, Key=path, Metadata={_TOKEN: token}
        )["UploadId"]
        try:
            parts = list(self._send_parts(source, size, path, upload))
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
        self, source: BinaryIO, size: int, path: str, upload: str
    ) -> "Iterator[CompletedPartTypeDef]":
        part_size = max(self._part_size, math.ceil(size / MAX_PARTS))
        for number, start in enumerate(range(0, size, part_size), start=1):
            part = source.read(min(part_size, size - start))
            sent = self._client.upload_part(
                Bucket=self._bucket, Key=path, UploadId=upload, PartNumber=number, Body=part
            )
            yield {"ETag": sent["ETag"], "PartNumber": number}

    def _abort(self, path: str, upload: str) -> None:
        try:
            self._client.abort_multipart_upload(Bucket=self._bucket, Key=path, UploadId=upload)
        except (BotoCoreError, ClientError):
            log.warning("upload_not_aborted", exc_info=True, extra={"key": path, "upload": upload})


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


@contextmanager
def translate_errors(
    uri: str, *, if_not_met: Callable[[str], ExportError] = already_published
) -> Iterator[None]:
    """Convert boto3's errors on `uri` into the exporter's errors.

    A condition that is not met becomes `if_not_met`: by default that of a write, that there is no object.
    """
    try:
        yield
    except ClientError as error:
        raise _from_answer(error, uri, if_not_met) from error
    except BotoCoreError as error:
        can_retry = not isinstance(error, _NEVER_RETRYABLE)
        raise StorageError(f"{uri}: {error}", where=uri, retryable=can_retry) from error
    except RecursionError as error:  # boto3 asks a server that redirects for the region, which redirects
        raise StorageError(f"{uri}: redirected without end", where=uri, retryable=False) from error
    except ValueError as error:  # raised by boto3 for an endpoint that is no URL
        raise StorageError(f"{uri}: {error}", where=uri, retryable=False) from error


def _from_answer(error: ClientError, uri: str, if_not_met: Callable[[str], ExportError]) -> ExportError:
    status = _status(error)
    code = _code(error)
    if status == 412 or code == EXISTS:
        return if_not_met(uri)
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
