"""Credentials for the places of one job, requested from the object store's STS.

The role must allow whatever any job may need. The policy sent with each request (AWS calls it a session
policy) removes everything but the prefixes of one job.
"""

import json
import re
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import timedelta

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from exporter.errors import StorageError
from exporter.spec import ExportSpec
from worker.environment.credential_renewal import TemporaryCredentials

_SHORTEST, _LONGEST = timedelta(minutes=15), timedelta(hours=12)  # lifetimes that STS accepts
_READ = ("s3:GetObject",)
_WRITE = ("s3:PutObject", "s3:AbortMultipartUpload", "s3:ListMultipartUploadParts")
_DELETE = ("s3:DeleteObject",)
_LIST = ("s3:ListBucket", "s3:ListBucketMultipartUploads", "s3:GetBucketLocation")
_SCHEME = "s3://"


@dataclass(frozen=True, kw_only=True)
class RoleCredentials:
    """Requests temporary credentials of a role, narrowed to one job."""

    role: str  # the ARN
    lifetime: timedelta

    @property
    def duration(self) -> timedelta:
        """The lifetime, limited to what STS accepts."""
        return min(max(self.lifetime, _SHORTEST), _LONGEST)

    def request(
        self, spec: ExportSpec, artifact_uri: str, code_cache: str | None, released: Sequence[str] = ()
    ) -> TemporaryCredentials:
        """Request credentials that reach the places of one job, and no others.

        Raises:
            StorageError: STS refused or could not be reached.
        """
        policy = make_policy(spec, artifact_uri, code_cache, released)
        config = Config(
            connect_timeout=10, read_timeout=20, retries={"mode": "standard", "total_max_attempts": 4}
        )
        try:
            with closing(boto3.session.Session().client("sts", config=config)) as sts:
                given = sts.assume_role(
                    RoleArn=self.role,
                    RoleSessionName="slipway-attempt",
                    Policy=json.dumps(policy, separators=(",", ":")),
                    DurationSeconds=int(self.duration.total_seconds()),
                )["Credentials"]
        except (BotoCoreError, ClientError, ValueError) as error:
            raise StorageError(
                f"STS gave no credentials of {self.role} for this job: {error}",
                hint="allow the worker to assume SLIPWAY_STORAGE_ROLE for SLIPWAY_STORAGE_ROLE_LIFETIME",
                where=self.role,
            ) from error
        return TemporaryCredentials(
            access_key=given["AccessKeyId"],
            secret_key=given["SecretAccessKey"],
            token=given["SessionToken"],
            expires=given["Expiration"],
        )


def make_policy(
    spec: ExportSpec, artifact_uri: str, code_cache: str | None, released: Sequence[str] = ()
) -> dict[str, object]:
    """Return a policy that lets an attempt read its sources, write its artifact and fill the code cache.

    It may also read the artifacts in `released`, with which its release gate compares its own.

    Below the spec's output_uri, an attempt may use only its artifact's own folder, because other jobs publish
    beside it. From the code cache, which all jobs share, it may delete nothing.
    """
    sources = (spec.checkpoint_uri, spec.item_input_uri, spec.sample_input_uri, spec.gate_rows_uri)
    listed = [place for uri in sources if uri for place in _parse_places(uri)]
    listed += [place for uri in released for place in _parse_place(uri)]
    files = (spec.config_uri, spec.assets_uri)  # what is read of them is known by name
    reads = [*listed, *(place for uri in files if uri for place in _parse_places(uri))]
    own, shared = _parse_place(artifact_uri), _parse_place(code_cache or "")
    statements = [
        *_allow_objects(_READ, [*reads, *own, *shared]),
        *_allow_objects(_WRITE, [*own, *shared]),
        *_allow_objects(_DELETE, own),
        *_allow_listing([*listed, *own, *shared]),
    ]
    return {"Version": "2012-10-17", "Statement": statements or [_NOTHING]}


# A policy needs at least one statement.
_NOTHING: dict[str, object] = {"Effect": "Deny", "Action": "s3:*", "Resource": "*"}


def _parse_places(uris: str) -> Iterator[tuple[str, str]]:
    """Yield bucket and prefix of each URI; of a pattern, the folder before its first wildcard."""
    for uri in (part.strip() for part in uris.split(",")):
        if uri.startswith(_SCHEME):
            bucket, _, key = uri.removeprefix(_SCHEME).partition("/")
            fixed = key[: min((key.find(sign) for sign in "*?[" if sign in key), default=len(key))]
            yield bucket, fixed.rstrip("/") if fixed == key else fixed.rpartition("/")[0]


def _parse_place(uri: str) -> list[tuple[str, str]]:
    """Return bucket and prefix of one URI that is no pattern, with the characters quoted that IAM expands."""
    if not uri.startswith(_SCHEME):
        return []
    bucket, _, key = uri.removeprefix(_SCHEME).partition("/")
    return [(bucket, re.sub(r"[$*?]", r"${\g<0>}", key.rstrip("/")))]


def _allow_objects(actions: tuple[str, ...], places: list[tuple[str, str]]) -> Iterator[dict[str, object]]:
    if places:
        resources = sorted({arn for place in places for arn in _object_arns(*place)})
        yield {"Effect": "Allow", "Action": list(actions), "Resource": resources}


def _object_arns(bucket: str, prefix: str) -> tuple[str, ...]:
    """Return the ARNs of the file of this name, and of everything below the folder of this name."""
    root = f"arn:aws:s3:::{bucket}/"
    return (f"{root}{prefix}", f"{root}{prefix}/*") if prefix else (f"{root}*",)


def _allow_listing(places: list[tuple[str, str]]) -> Iterator[dict[str, object]]:
    """Yield one statement per bucket, to stay below the 2,048 characters that a policy may have."""
    for bucket in sorted({bucket for bucket, _ in places}):
        prefixes = sorted({prefix for at, prefix in places if at == bucket})
        below = [each for prefix in prefixes for each in (prefix, f"{prefix}/*")]
        condition: dict[str, object] = (
            {"Condition": {"StringLike": {"s3:prefix": below}}} if all(prefixes) else {}
        )
        yield {"Effect": "Allow", "Action": list(_LIST), "Resource": [f"arn:aws:s3:::{bucket}"], **condition}
