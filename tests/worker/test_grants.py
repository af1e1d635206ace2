"""Credentials that expire while an attempt runs."""

import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import botocore.session
import pytest

from exporter.errors import StorageError
from worker.grants import Grant, Temporary


def temporary(name: str, lifetime: timedelta) -> Temporary:
    return Temporary(
        access_key=name, secret_key="secret", token="token", expires=datetime.now(UTC) + lifetime
    )


@pytest.fixture
def ended() -> Iterator[threading.Event]:
    event = threading.Event()
    yield event
    event.set()


def test_boto3_goes_on_with_newer_credentials_before_the_first_expire(
    tmp_path: Path, ended: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = iter([temporary("first", timedelta(seconds=3)), temporary("second", timedelta(hours=1))])
    grant = Grant(folder=tmp_path / "grant", ask=lambda: next(given))
    for name, value in grant.environment().items():
        monkeypatch.setenv(name, str(value))
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    found = botocore.session.get_session().get_credentials()
    assert found is not None and found.get_frozen_credentials().access_key == "first"
    grant.keep(ended.is_set)
    deadline = time.monotonic() + 20
    while found.get_frozen_credentials().access_key != "second":
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_what_is_not_given_the_second_time_is_asked_for_again_later(
    tmp_path: Path, ended: threading.Event
) -> None:
    asked: list[int] = []

    def ask() -> Temporary:
        asked.append(len(asked))
        if len(asked) > 1:
            raise StorageError("away")
        return temporary("first", timedelta(seconds=1))

    grant = Grant(folder=tmp_path / "grant", ask=ask)
    grant.environment()
    grant.keep(ended.is_set)
    time.sleep(3)
    assert asked == [0, 1]


def test_only_the_attempt_s_user_can_read_them(tmp_path: Path) -> None:
    grant = Grant(folder=tmp_path / "grant", ask=lambda: temporary("key", timedelta(hours=1)))
    grant.environment()
    assert (grant.folder.stat().st_mode & 0o777, grant._file.stat().st_mode & 0o777) == (0o700, 0o600)


def test_buckets_are_addressed_as_the_worker_s_own_configuration_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = tmp_path / "own"
    own.write_text("[default]\nregion = eu-west-1\ns3 =\n  addressing_style = virtual\n")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(own))
    grant = Grant(folder=tmp_path / "grant", ask=lambda: temporary("key", timedelta(hours=1)))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(grant.environment()["AWS_CONFIG_FILE"]))
    config = botocore.session.get_session().get_scoped_config()
    assert config["s3"] == {"addressing_style": "virtual"}
