"""What only an object store can get wrong: parts left behind, lost answers, refusals, dead endpoints."""

import io
import socket
import subprocess
import sys
import time
from datetime import timedelta
from typing import Any

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError
from botocore.response import StreamingBody

from exporter.errors import AlreadyPublished, LeaseUnproven, SourceNotFound, StorageError
from exporter.storage.object_store import ObjectStore, open_uri

PART_SIZE = 5 << 20
LARGE = bytes(11 << 20)


@pytest.fixture
def store(s3_uri: str) -> ObjectStore:
    s3 = open_uri(s3_uri)
    return ObjectStore(s3._client, s3._bucket, "root", part_size=PART_SIZE)


class _Breaks(io.BytesIO):
    """Gives its first part, then fails as a disk would."""

    def read(self, size: int | None = -1, /) -> bytes:
        if self.tell():
            raise OSError("disk gone")
        return super().read(size)


def answer(status: int, code: str) -> ClientError:
    return ClientError(
        {
            "Error": {"Code": code},
            "ResponseMetadata": {
                "HTTPStatusCode": status,
                "HostId": "",
                "HTTPHeaders": {},
                "RequestId": "",
                "RetryAttempts": 0,
            },
        },
        "Operation",
    )


def uploads(store: ObjectStore) -> list[object]:
    return list(store._client.list_multipart_uploads(Bucket=store._bucket).get("Uploads", ()))


def test_a_failed_upload_leaves_no_parts(store: ObjectStore) -> None:
    with pytest.raises(OSError, match="disk gone"):
        store.write(_Breaks(LARGE), len(LARGE), "key")
    assert uploads(store) == []
    assert not store.exists("key")


def test_an_interrupted_upload_leaves_no_parts(store: ObjectStore) -> None:
    def interrupt(count: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        store.write(io.BytesIO(LARGE), len(LARGE), "key", interrupt)
    assert uploads(store) == []


@pytest.mark.parametrize("size", [3, len(LARGE)], ids=["whole", "parts"])
def test_the_slower_of_two_writers_is_refused(store: ObjectStore, size: int) -> None:
    other = ObjectStore(store._client, store._bucket, "root")

    class Overtaken(io.BytesIO):
        def read(self, count: int | None = -1, /) -> bytes:
            if not other.exists("key"):
                other.put_bytes(b"faster", "key")
            return super().read(count)

    with pytest.raises(AlreadyPublished):
        store.write(Overtaken(bytes(size)), size, "key")
    assert store.read("key") == b"faster"
    assert uploads(store) == []


@pytest.mark.parametrize("size", [3, len(LARGE)], ids=["whole", "parts"])
def test_a_write_sent_twice_because_its_answer_was_lost_succeeds(store: ObjectStore, size: int) -> None:
    """The server takes the request, its answer is lost, and boto3's second try meets the first's object."""
    operation = "PutObject" if size == 3 else "CompleteMultipartUpload"

    def lose_the_answer(**_: object) -> None:
        raise answer(412, "PreconditionFailed")

    store._client.meta.events.register(f"after-call.s3.{operation}", lose_the_answer)
    store.write(io.BytesIO(bytes(size)), size, "key")
    assert store.size("key") == size


def test_deleting_a_folder_ends_its_dead_uploads(store: ObjectStore) -> None:
    for key in ("root/job1/package", "root/job10/package"):
        store._client.create_multipart_upload(Bucket=store._bucket, Key=key)
    store.delete_prefix("job1")
    left = store._client.list_multipart_uploads(Bucket=store._bucket)["Uploads"]
    assert [upload["Key"] for upload in left] == ["root/job10/package"]


def test_more_files_than_one_page_are_listed(store: ObjectStore) -> None:
    for number in range(1001):
        store._client.put_object(Bucket=store._bucket, Key=f"root/many/{number:04}")
    assert len(store.list("many")) == 1001


def test_a_missing_bucket_is_named(s3_uri: str) -> None:
    with pytest.raises(SourceNotFound, match="s3://no-such-bucket/key"):
        open_uri("s3://no-such-bucket").read("key")


@pytest.mark.parametrize(
    ("status", "code", "retryable"),
    [(403, "AccessDenied", False), (503, "SlowDown", True), (400, "ExpiredToken", True), (400, "Bad", False)],
)
def test_a_refusal_says_whether_to_try_again(
    store: ObjectStore, status: int, code: str, retryable: bool
) -> None:
    def refuse(**_: object) -> None:
        raise answer(status, code)

    store._client.meta.events.register("before-call.s3.GetObject", refuse)
    with pytest.raises(StorageError, match=f"root/key.*{code}") as refusal:
        store.read("key")
    assert refusal.value.retryable is retryable


def test_a_range_is_asked_for_again_when_the_connection_breaks(
    store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.put_bytes(b"0123456789", "key")
    get, asked = store._client.get_object, []

    def break_once(**request: Any) -> Any:
        asked.append(request["Range"])
        whole = get(**request)
        return whole if len(asked) > 1 else {**whole, "Body": StreamingBody(io.BytesIO(b"2"), 3)}

    monkeypatch.setattr(store._client, "get_object", break_once)
    with store.open_file("key") as file:
        file.seek(2)
        assert file.read(3) == b"234"
    assert asked == ["bytes=2-4"] * 2


def test_an_endpoint_that_does_not_answer_is_worth_another_try(s3_uri: str) -> None:
    config = Config(retries={"total_max_attempts": 1}, connect_timeout=1)
    client = boto3.session.Session().client("s3", endpoint_url="http://127.0.0.1:9", config=config)
    with pytest.raises(StorageError, match="s3://bucket/key") as failure:
        ObjectStore(client, "bucket").read("key")
    assert failure.value.retryable


def test_a_write_within_a_time_is_given_up_after_it(s3_uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    store, begun = open_uri(s3_uri), time.monotonic()
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{deaf.getsockname()[1]}")
        with pytest.raises(StorageError) as failure:
            store.put_bytes(b"manifest", "key", within=timedelta(seconds=2))
    assert failure.value.retryable and time.monotonic() - begun < 10


def test_no_try_to_remove_outlasts_the_right_to_it(s3_uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    store, begun = open_uri(s3_uri), time.monotonic()
    rights = iter([timedelta(seconds=1), timedelta(seconds=1)])

    def right() -> timedelta:
        for each in rights:
            return each
        raise LeaseUnproven("another has the job")

    with socket.create_server(("127.0.0.1", 0)) as deaf:
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{deaf.getsockname()[1]}")
        with pytest.raises(LeaseUnproven):
            store.delete("key", right)
    assert time.monotonic() - begun < 10


def test_dead_uploads_are_left_to_who_has_the_right_to_end_them(store: ObjectStore) -> None:
    store._client.create_multipart_upload(Bucket=store._bucket, Key="root/job1/package")
    with pytest.raises(LeaseUnproven):
        store.delete_prefix("job1", refused)
    assert len(uploads(store)) == 1
    store.delete_prefix("job1", lambda: timedelta(minutes=1))
    assert uploads(store) == []


def refused() -> None:
    raise LeaseUnproven("another has the job")


def test_a_write_within_a_time_does_not_replace_what_is_there(store: ObjectStore) -> None:
    store.put_bytes(b"first", "key", within=timedelta(minutes=1))
    with pytest.raises(AlreadyPublished):
        store.put_bytes(b"second", "key", within=timedelta(minutes=1))
    assert store.read("key") == b"first"


def test_missing_credentials_are_not_worth_another_try(s3_uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    with pytest.raises(StorageError, match="credentials") as refusal:
        open_uri("s3://bucket").read("key")
    assert not refusal.value.retryable


def test_an_endpoint_that_is_no_url_is_refused(s3_uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "not a url")
    with pytest.raises(StorageError, match="not a url"):
        open_uri("s3://bucket")


def test_storage_is_imported_without_torch_or_boto3() -> None:
    program = (
        "import sys, exporter.storage.open;"
        "exporter.storage.open.open_store('/tmp');"
        "sys.exit(bool({'torch', 'boto3'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
