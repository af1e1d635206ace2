"""Give temporary credentials to an attempt, and renew them while it runs.

boto3 gets credentials from a program, as its configuration file says, and runs that program again when they
are about to expire. Ours prints a file, which the worker rewrites. Both files lie in the attempt's workspace.
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

_LOOK = timedelta(seconds=1)  # between two checks whether the attempt has ended
_RETRY = timedelta(minutes=1)  # pause after a failed renewal, and the shortest time between two requests
_CREDENTIAL_SETTINGS = (  # how the worker gets its own credentials: not for attempts
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
    """Credentials of the object store that expire."""

    access_key: str
    secret_key: str
    token: str
    expires: datetime

    def as_json(self) -> str:
        """Return them as the JSON that boto3 expects from a credential process."""
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
    """Credentials of one attempt: the folder they are written to, and the source of newer ones."""

    folder: Path
    request: Callable[[], TemporaryCredentials]  # raises StorageError
    lifetime: timedelta  # the lifetime that is requested

    clock: Callable[[], float] = since_boot

    def start(self) -> Mapping[str, str | None]:
        """Request credentials for the first time; return the variables by which the attempt finds them.

        Raises:
            StorageError: they are refused, or cannot be written.
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
            "AWS_EC2_METADATA_DISABLED": "true",  # else boto3 would use the machine's own
        }

    def renew_until(self, has_ended: Callable[[], bool]) -> None:
        """Renew the credentials in a thread after half of their lifetime, until the attempt has ended.

        Time is measured since boot, because a change of the wall clock would renew them too late or all the
        time.
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
    """Return a boto3 configuration file: credentials from `file`, everything else from the worker's profile.

    Such settings are region, endpoint, CA bundle and bucket addressing, and the section of service endpoints
    if the profile names one.
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
    """Yield the lines of settings; nested settings are indented."""
    for name, value in settings.items():
        if isinstance(value, Mapping):
            yield f"{name} ="
            yield from (f"  {each} = {below}" for each, below in value.items())
        else:
            yield f"{name} = {value}"
