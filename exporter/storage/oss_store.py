"""A store in a bucket of Alibaba Cloud OSS, which speaks a dialect of S3.

OSS differs from S3 in what its documentation asks of boto3, and in what it lacks: a bucket is part of the
host's name and never of the path; signatures are of version 2, because boto3's version 4 sends bodies in
chunks; `x-oss-forbid-overwrite` takes the place of `If-None-Match`, which is refused; unfinished uploads
cannot be listed. The actions that a RAM policy has to allow: oss:GetObject, PutObject, DeleteObject,
ListObjects and AbortMultipartUpload.
"""

import logging
import re
from datetime import timedelta
from typing import TYPE_CHECKING, Any, BinaryIO, ClassVar, cast

from botocore.config import Config
from botocore.exceptions import ClientError

from exporter.errors import StorageError
from exporter.storage.cloud_store import split_bucket
from exporter.storage.object_store import EXISTS, ObjectStore, make_config, make_session, translate_errors
from exporter.storage.settings import AccessKey, AlibabaSettings, OssSettings

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mypy_boto3_s3 import S3Client

_SCHEME = "oss"
_NAMES = re.compile(r"[a-z0-9][a-z0-9-]{1,61}[a-z0-9]")
_CREATING = ("PutObject", "CreateMultipartUpload", "CompleteMultipartUpload")
_NOT_LISTED = {400, 403, 405, 501}  # statuses of a request that the dialect lacks

log = logging.getLogger(__name__)


class OssStore(ObjectStore):
    """Stores files below a prefix of a bucket of OSS."""

    scheme = _SCHEME
    only_if_new: ClassVar["Mapping[str, Any]"] = {}  # a header says it; see `create_client`
    _guarded: ClassVar[set[str]] = set()  # buckets that have been seen to refuse a key that exists

    def make_client(self, endpoint: str | None = None, *, within: timedelta | None = None) -> "S3Client":
        return create_client(self._bucket, endpoint, within)

    def _write_whole(self, source: BinaryIO, size: int, path: str, token: str) -> None:
        super()._write_whole(source, size, path, token)
        if self._bucket not in self._guarded:
            source.seek(-size, 1)
            self._require_guard(source, size, path, token)

    def _require_guard(self, source: BinaryIO, size: int, path: str, token: str) -> None:
        """Write a key again as it is: a bucket that allows it would let two attempts overwrite each other."""
        try:
            super()._write_whole(source, size, path, token)
        except ClientError as error:
            if error.response.get("Error", {}).get("Code") == EXISTS:
                self._guarded.add(self._bucket)
            return  # any other answer says nothing; the next small file asks again
        uri = self.uri_of(path.removeprefix(self._root))
        raise StorageError(
            f"{uri} was written twice, although x-oss-forbid-overwrite was set",
            hint="take a bucket that has never had versioning: OSS ignores that header in others",
            where=uri,
            retryable=False,
        )

    def _uploads(self, prefix: str) -> tuple[tuple[str, str], ...]:
        try:
            return super()._uploads(prefix)
        except StorageError as error:
            cause = error.__cause__
            if not isinstance(cause, ClientError) or _status(cause) not in _NOT_LISTED:
                raise
            log.info(
                "uploads_not_listed", extra={"uri": self.uri_of(prefix)}
            )  # a rule of the bucket ends them
            return ()


def open_uri(uri: str) -> OssStore:
    """Open the store of `oss://bucket/prefix`."""
    bucket, prefix = split_bucket(uri, _SCHEME, _NAMES)
    return OssStore(create_client(bucket), bucket, prefix)


def create_client(bucket: str, endpoint: str | None = None, within: timedelta | None = None) -> "S3Client":
    """Create a client for OSS, whose writes never replace an object.

    Raises:
        StorageError: the environment names no endpoint, or no access key.
    """
    uri = f"{_SCHEME}://{bucket}"
    with translate_errors(uri):
        settings = OssSettings()
        key = _find_key(settings, uri)
        url = endpoint or settings.url
        if url is None:
            raise _missing(uri, "no endpoint", "OSS_ENDPOINT or OSS_REGION")
        config = make_config(within).merge(Config(signature_version="s3", s3={"addressing_style": "virtual"}))
        client = make_session().create_client(
            "s3",
            region_name=settings.region or "oss",
            endpoint_url=url,
            config=config,
            aws_access_key_id=key.access_key_id,
            aws_secret_access_key=key.access_key_secret,
            aws_session_token=key.token,
        )
    for operation in _CREATING:
        client.meta.events.register(f"before-call.s3.{operation}", _forbid_overwrite)
    return cast("S3Client", client)


def _find_key(settings: OssSettings, uri: str) -> AccessKey:
    """Return one access key: the one for OSS, or else the one for all of Alibaba Cloud."""
    for given in (settings, AlibabaSettings()):
        if key := given.key:
            return key
    raise _missing(uri, "no access key", "OSS_ACCESS_KEY_ID and OSS_ACCESS_KEY_SECRET")


def _missing(uri: str, what: str, names: str) -> StorageError:
    return StorageError(f"{uri}: {what} is set", hint=f"set {names}", where=uri, retryable=False)


def _forbid_overwrite(params: dict[str, Any], **_: object) -> None:
    params["headers"]["x-oss-forbid-overwrite"] = "true"


def _status(error: ClientError) -> int:
    return int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
