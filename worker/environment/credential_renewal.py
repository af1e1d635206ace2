"""Handing temporary credentials to an attempt, and newer ones while it runs.

boto3 asks a program for them, as its configuration file says, and again when they are about to expire; the
program shows a file, which the worker writes anew. Both files lie in the attempt's workspace.
"""

import json
import os
import shlex
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

import botocore.session
from botocore.exceptions import ProfileNotFound

from exporter.errors import StorageError
from jobs.lease.lease_expiry import since_boot
from telemetry.logging import logger

log = logger(__name__)

_LOOK = timedelta(seconds=1)  # whether the attempt has ended
_RETRY = timedelta(minutes=1)  # after a renewal that did not succeed; no two are asked for sooner
_CREDENTIAL_SETTINGS = (  # what the worker gets its own by, which is no attempt's business
    "aws_access",
    "aws_secret",
    "aws_session",
    "aws_security",
    "credential_",
    "duration_seconds",
    "external_id",
    "login_",
    "mfa_serial",
    "role_",
    "source_profile",
    "sso_",
    "web_identity_",
)


@dataclass(frozen=True, kw_only=True)
class TemporaryCredentials:
    """Credentials that expire."""

    access_key: str
    secret_key: str
    token: str
    expires: datetime

    def as_json(self) -> str:
        """In the form that boto3 takes from a program."""
        return json.dumps(
            {
                "Version": 1,
                "AccessKeyId": self.access_key,
                "SecretAccessKey": self.secret_key,
                "SessionToken": self.token,
                "Expiration": self.expires.isoformat(),
            }
        )


@dataclass(frozen=True, kw_only=True)
class CredentialRenewal:
    """The credentials of one attempt: where they are, and where newer ones come from."""

    folder: Path
    request: Callable[[], TemporaryCredentials]  # raises StorageError
    lifetime: timedelta  # that is asked for

    clock: Callable[[], float] = since_boot

    def start(self) -> Mapping[str, str | None]:
        """Ask for them for the first time; the variables by which the attempt finds them.

        Raises:
            StorageError: nobody gives them, or they cannot be written down.
        """
        given = self.request()
        try:
            self.folder.mkdir(mode=0o700)
            self._write_credentials(given)
            self._config.write_text(format_aws_config(self._file))
        except OSError as error:
            raise StorageError(f"{self.folder} could not be written: {error.strerror}") from error
        return {
            "AWS_CONFIG_FILE": str(self._config),
            "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
            "AWS_EC2_METADATA_DISABLED": "true",  # boto3 would else ask the machine for its own
        }

    def renew_until(self, has_ended: Callable[[], bool]) -> None:
        """Renew them in a thread, when half of their time has passed, until the attempt has ended.

        By a clock that nobody sets: by the wall's, which is, they would be renewed too late or all the time.
        """
        threading.Thread(target=self._renew_until, args=(has_ended,), name="credentials", daemon=True).start()

    def _renew_until(self, has_ended: Callable[[], bool]) -> None:
        half, retry = self.lifetime.total_seconds() / 2, _RETRY.total_seconds()
        due, asleep = self.clock() + max(half, retry), threading.Event()
        while not has_ended():
            asleep.wait(_LOOK.total_seconds())
            if self.clock() < due:
                continue
            try:
                self._write_credentials(self.request())
                due = self.clock() + max(half, retry)
            except StorageError as error:
                log.warning("credentials_not_renewed", message=error.message)
                due = self.clock() + retry
            except OSError:
                if not self.folder.exists():  # the workspace is gone, and the attempt with it
                    return
                log.warning("credentials_not_renewed", exc_info=True)
                due = self.clock() + retry

    def _write_credentials(self, given: TemporaryCredentials) -> None:
        partial = self._file.with_suffix(".partial")
        partial.touch(mode=0o600)
        partial.write_text(given.as_json())
        partial.rename(self._file)

    @property
    def _file(self) -> Path:
        return self.folder / "credentials.json"

    @property
    def _config(self) -> Path:
        return self.folder / "config"


def format_aws_config(file: Path) -> str:
    """A boto3 configuration file: credentials are in `file`, all else is as in the worker's own profile.

    Such as region, endpoint, bundle of authorities, and how buckets are addressed; with its section of
    endpoints by service, where it names one.
    """
    session = botocore.session.get_session()
    try:
        own = session.get_scoped_config()
    except ProfileNotFound:
        own = {}
    lines = ["[default]", f"credential_process = cat {shlex.quote(str(file))}"]
    lines += _format_settings({name: own[name] for name in own if not name.startswith(_CREDENTIAL_SETTINGS)})
    services = session.full_config.get("services", {}).get(own.get("services"))
    if isinstance(services, Mapping):
        lines += [f"[services {shlex.quote(own['services'])}]", *_format_settings(services)]
    return "\n".join([*lines, ""])


def _format_settings(settings: Mapping[str, object]) -> Iterator[str]:
    """As the file has them; what stands below another one is indented."""
    for name, value in settings.items():
        if isinstance(value, Mapping):
            yield f"{name} ="
            yield from (f"  {each} = {below}" for each, below in value.items())
        else:
            yield f"{name} = {value}"
