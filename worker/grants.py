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
from datetime import UTC, datetime, timedelta
from pathlib import Path

import botocore.session

from exporter.errors import StorageError
from telemetry.logging import logger

log = logger(__name__)

_LOOK = timedelta(seconds=1)  # whether the attempt has ended
_RETRY = timedelta(minutes=1)  # after a renewal that did not succeed


@dataclass(frozen=True, kw_only=True)
class Temporary:
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
class Grant:
    """The credentials of one attempt: where they are, and where newer ones come from."""

    folder: Path
    ask: Callable[[], Temporary]  # raises StorageError

    def environment(self) -> Mapping[str, str | None]:
        """Ask for them for the first time; the variables by which the attempt finds them.

        Raises:
            StorageError: nobody gives them, or they cannot be written down.
        """
        given = self.ask()
        try:
            self.folder.mkdir(mode=0o700)
            self._write(given)
            self._config.write_text("\n".join(self._settings()))
        except OSError as error:
            raise StorageError(f"{self.folder} could not be written: {error.strerror}") from error
        return {
            "AWS_CONFIG_FILE": str(self._config),
            "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
            "AWS_EC2_METADATA_DISABLED": "true",  # boto3 would else ask the machine for its own
        }

    def keep(self, has_ended: Callable[[], bool]) -> None:
        """Renew them in a thread, when half of their time has passed, until the attempt has ended."""
        threading.Thread(target=self._keep, args=(has_ended,), name="credentials", daemon=True).start()

    def _keep(self, has_ended: Callable[[], bool]) -> None:
        due, asleep = datetime.now(UTC) + self._half_of(self._expires()), threading.Event()
        while not has_ended():
            asleep.wait(_LOOK.total_seconds())
            if datetime.now(UTC) < due:
                continue
            try:
                given = self.ask()
                self._write(given)
                due = datetime.now(UTC) + self._half_of(given.expires)
            except StorageError as error:
                log.warning("credentials_not_renewed", message=error.message)
                due = datetime.now(UTC) + _RETRY
            except OSError:
                if not self.folder.exists():  # the workspace is gone, and the attempt with it
                    return
                log.warning("credentials_not_renewed", exc_info=True)
                due = datetime.now(UTC) + _RETRY

    def _half_of(self, expires: datetime) -> timedelta:
        return (expires - datetime.now(UTC)) / 2

    def _expires(self) -> datetime:
        return datetime.fromisoformat(json.loads(self._file.read_text())["Expiration"])

    def _write(self, given: Temporary) -> None:
        partial = self._file.with_suffix(".partial")
        partial.touch(mode=0o600)
        partial.write_text(given.as_json())
        partial.rename(self._file)

    def _settings(self) -> Iterator[str]:
        """With how the worker's own configuration would have buckets addressed."""
        yield "[default]"
        yield f"credential_process = cat {shlex.quote(str(self._file))}"
        if isinstance(own := botocore.session.get_session().get_scoped_config().get("s3"), dict):
            yield "s3 ="
            yield from (f"  {name} = {value}" for name, value in own.items())
        yield ""

    @property
    def _file(self) -> Path:
        return self.folder / "credentials.json"

    @property
    def _config(self) -> Path:
        return self.folder / "config"
