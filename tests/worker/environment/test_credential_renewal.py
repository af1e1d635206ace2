"""Credentials that expire while an attempt runs."""

import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import botocore.session
import pytest

from exporter.errors import StorageError
from worker.environment.credential_renewal import CredentialRenewal, TemporaryCredentials

HOUR = timedelta(hours=1)
OWN = """
[profile store]
region = eu-west-1
endpoint_url = https://store.example
ca_bundle = /etc/own.pem
services = own
role_arn = arn:aws:iam::1:role/own
source_profile = base
aws_access_key_id = planted
aws_secret_access_key = planted
s3 =
  addressing_style = virtual
[profile base]
region = planted
[services own]
s3 =
  endpoint_url = https://s3.example
"""


def temporary(name: str, lifetime: timedelta) -> TemporaryCredentials:
    return TemporaryCredentials(
        access_key=name, secret_key="secret", token="token", expires=datetime.now(UTC) + lifetime
    )


class Clock:
    """A clock that stands still unless it is moved."""

    at = 1000.0

    def __call__(self) -> float:
        return self.at


@pytest.fixture
def ended() -> Iterator[threading.Event]:
    event = threading.Event()
    yield event
    event.set()


def test_boto3_goes_on_with_newer_credentials_before_the_first_expire(
    tmp_path: Path, ended: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = iter([temporary("first", timedelta(minutes=4)), temporary("second", HOUR)])
    clock = Clock()
    renewal = CredentialRenewal(
        folder=tmp_path / "grant", request=lambda: next(given), lifetime=HOUR, clock=clock
    )
    for name, value in renewal.start().items():
        monkeypatch.setenv(name, str(value))
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    found = botocore.session.get_session().get_credentials()
    assert found is not None and found.get_frozen_credentials().access_key == "first"
    renewal.renew_until(ended.is_set)
    time.sleep(1.5)
    assert found.get_frozen_credentials().access_key == "first"
    clock.at += 1801
    deadline = time.monotonic() + 20
    while found.get_frozen_credentials().access_key != "second":
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_what_is_not_given_the_second_time_is_asked_for_again_later(
    tmp_path: Path, ended: threading.Event
) -> None:
    asked: list[int] = []

    def ask() -> TemporaryCredentials:
        asked.append(len(asked))
        if len(asked) > 1:
            raise StorageError("away")
        return temporary("first", HOUR)

    clock = Clock()
    renewal = CredentialRenewal(folder=tmp_path / "grant", request=ask, lifetime=HOUR, clock=clock)
    renewal.start()
    renewal.renew_until(ended.is_set)
    time.sleep(0.5)  # now it has seen the time
    clock.at += 1801
    time.sleep(3)
    assert asked == [0, 1]


def test_only_the_attempt_s_user_can_read_them(tmp_path: Path) -> None:
    renewal = CredentialRenewal(
        folder=tmp_path / "grant", request=lambda: temporary("key", HOUR), lifetime=HOUR
    )
    renewal.start()
    assert (renewal.folder.stat().st_mode & 0o777, renewal._file.stat().st_mode & 0o777) == (0o700, 0o600)


def test_the_store_is_reached_as_the_worker_s_own_configuration_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = tmp_path / "own"
    own.write_text(OWN)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(own))
    monkeypatch.setenv("AWS_PROFILE", "store")
    renewal = CredentialRenewal(
        folder=tmp_path / "grant", request=lambda: temporary("key", HOUR), lifetime=HOUR
    )
    monkeypatch.setenv("AWS_CONFIG_FILE", str(renewal.start()["AWS_CONFIG_FILE"]))
    monkeypatch.delenv("AWS_PROFILE")
    session = botocore.session.get_session()
    config = dict(session.get_scoped_config())
    assert config.pop("credential_process").startswith("cat ")
    assert config == {
        "region": "eu-west-1",
        "endpoint_url": "https://store.example",
        "ca_bundle": "/etc/own.pem",
        "services": "own",
        "s3": {"addressing_style": "virtual"},
    }
    assert session.full_config["services"] == {"own": {"s3": {"endpoint_url": "https://s3.example"}}}
