"""What the stores of other clouds than Amazon's can get wrong: dialects, names, broken answers."""

import io
import multiprocessing
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from multiprocessing.synchronize import Event
from pathlib import Path

import pytest

from exporter.errors import AlreadyPublished, InvalidSpec, LeaseUnproven, SourceNotFound, StorageError
from exporter.storage import store as stores
from exporter.storage.open import open_store
from tests.stores.parts import store_in_parts
from tests.stores.relay import Forward, Relay, Reply, Request, Rule, cut

PART_SIZE = 5 << 20
LARGE = bytes(range(256)) * (11 << 12)  # 11 MiB: three parts
KINDS = ["oss", "gs", "az"]
SERVERS = {"oss": "oss_server", "gs": "gcs_server", "az": "azure_server"}


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def uri(kind: str, request: pytest.FixtureRequest) -> str:
    return str(request.getfixturevalue(f"{kind}_uri"))


@pytest.fixture
def server(kind: str, uri: str, request: pytest.FixtureRequest) -> Iterator[Relay]:
    relay: Relay = request.getfixturevalue(SERVERS[kind])
    before = relay.interrupt
    yield relay
    relay.interrupt = before


def broken_once(condition: str, at: int) -> tuple[list[Request], Rule]:
    """Return what was broken, and a rule that ends the connection once within an answer with a body."""
    broken: list[Request] = []

    def rule(request: Request, forward: Forward) -> Reply:
        reply = forward(request)
        if request.method == condition and len(reply.body) > at and not broken:
            broken.append(request)
            return cut(reply, at)
        return reply

    return broken, rule


def test_a_range_is_asked_for_again_when_the_connection_breaks(uri: str, server: Relay) -> None:
    store = open_store(uri)
    store.put_bytes(LARGE, "large")
    broken, server.interrupt = broken_once("GET", 100_000)
    with store.open_file("large") as file:
        file.seek(3)
        assert file.read(1 << 20) == LARGE[3 : 3 + (1 << 20)]
    assert len(broken) == 1


def test_a_copy_survives_a_broken_connection(uri: str, server: Relay) -> None:
    store = open_store(uri)
    store.put_bytes(LARGE, "large")
    broken, server.interrupt = broken_once("GET", 3 << 20)
    assert b"".join(store.chunks("large")) == LARGE
    assert len(broken) == 1


def test_less_than_was_asked_for_is_no_file(
    kind: str, uri: str, server: Relay, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that says that less is all there is."""
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    store = open_store(uri)
    store.put_bytes(b"0123456789", "key")

    def shorten(request: Request, forward: Forward) -> Reply:
        reply = forward(request)
        if request.method != "GET" or not reply.body.startswith(b"0"):
            return reply
        headers = {**reply.headers, "content-range": "bytes 0-3/10"}
        return replace(reply, body=reply.body[:4], headers=headers)

    server.interrupt = shorten
    with store.open_file("key") as file:
        if kind == "az":  # its library asks for the rest
            assert file.read(10) == b"0123456789"
        else:
            with pytest.raises(StorageError, match="4 bytes came where 10 were asked for"):
                file.read(10)


@pytest.mark.parametrize("size", [3, len(LARGE)], ids=["whole", "parts"])
def test_the_slower_of_two_writers_is_refused(uri: str, size: int) -> None:
    store, other = store_in_parts(uri, PART_SIZE), open_store(uri)

    class Overtaken(io.BytesIO):
        def read(self, count: int | None = -1, /) -> bytes:
            if not other.exists("key"):
                other.put_bytes(b"faster", "key")
            return super().read(count)

    with pytest.raises(AlreadyPublished):
        store.write(Overtaken(bytes(size)), size, "key")
    assert store.read("key") == b"faster"


def write_manifest(uri: str, name: str, start: Event) -> None:
    start.wait(30)
    try:
        open_store(uri).put_bytes(name.encode(), "manifest.json", within=timedelta(seconds=30))
    except AlreadyPublished:
        raise SystemExit(3) from None


def test_of_two_processes_one_writes_the_manifest(uri: str) -> None:
    context = multiprocessing.get_context("fork")
    start = context.Event()
    writers = [
        context.Process(target=write_manifest, args=(uri, name, start)) for name in ("first", "second")
    ]
    for writer in writers:
        writer.start()
    start.set()
    for writer in writers:
        writer.join(60)
    assert sorted(writer.exitcode or 0 for writer in writers) == [0, 3]
    winner = ("first", "second")[[writer.exitcode for writer in writers].index(0)]
    assert open_store(uri).read("manifest.json") == winner.encode()


def test_a_forked_child_reads_what_its_parent_has_read(uri: str) -> None:
    """Each tower is exported in a fork of a process that has read the config."""
    open_store(uri).put_bytes(b"config", "key")
    assert open_store(uri).read("key") == b"config"
    child = multiprocessing.get_context("fork").Process(target=lambda: open_store(uri).read("key"))
    child.start()
    child.join(60)
    assert child.exitcode == 0


def test_a_write_whose_answer_is_lost_succeeds(uri: str, server: Relay) -> None:
    """The server takes the request, its answer is lost, and the second try meets the first one's object."""
    store, lost = open_store(uri), threading.Event()

    def lose(request: Request, forward: Forward) -> Reply:
        reply = forward(request)
        if request.method in ("PUT", "POST") and b"payload" in request.body and not lost.is_set():
            lost.set()
            return Reply(status=503)
        return reply

    server.interrupt = lose
    store.put_bytes(b"payload", "key")
    assert lost.is_set() and store.read("key") == b"payload"


@pytest.mark.parametrize(("status", "retryable"), [(403, False), (503, True), (429, True)])
def test_a_refusal_says_whether_to_try_again(
    uri: str, server: Relay, status: int, retryable: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stores, "_PAUSE_S", 0)
    store = open_store(uri)
    server.interrupt = lambda request, forward: Reply(status=status)
    with pytest.raises(StorageError, match="key") as refusal:
        store.delete("key", lambda: timedelta(seconds=1) if status > 403 else None)
    assert refusal.value.retryable is retryable
    assert ("what they allow" in refusal.value.hint) is (status == 403)


def test_a_redirect_is_not_followed(uri: str, server: Relay, monkeypatch: pytest.MonkeyPatch) -> None:
    """It could lead to the machine's own addresses, and its answer be taken for a file."""
    monkeypatch.setattr(stores, "_PAUSE_S", 0)
    store = open_store(uri)
    store.put_bytes(b"config", "key")
    elsewhere = f"{server.url}/elsewhere"

    def redirect(request: Request, forward: Forward) -> Reply:
        if "elsewhere" in request.target:
            return Reply(status=200, body=b"metadata of the machine")
        return Reply(status=302, headers={"location": elsewhere})

    server.interrupt = redirect
    with pytest.raises(StorageError):
        store.delete("key", lambda: timedelta(seconds=1))
    assert not [each for each in server.asked if "elsewhere" in each.target]


def test_a_list_without_end_is_given_up(uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stores, "MOST_FILES", 4)
    store = open_store(uri)
    for number in range(5):
        store.put_bytes(b"", f"many/{number}")
    with pytest.raises(StorageError, match="more than 4 files") as refusal:
        store.list("many")
    assert not refusal.value.retryable


def test_a_bucket_that_is_not_there_is_named(kind: str, uri: str) -> None:
    with pytest.raises(SourceNotFound, match=f"{kind}://no-such-bucket/key"):
        open_store(f"{kind}://no-such-bucket").read("key")


@pytest.mark.parametrize(
    "bucket",
    ["..", ".", "a", "B-UPPER", "127.0.0.1:80", "host.example.com#", "x@host", "a%2F..", "a b", "-a-"],
)
def test_a_name_that_could_lead_elsewhere_is_no_bucket(kind: str, uri: str, bucket: str) -> None:
    with pytest.raises(InvalidSpec, match="names no bucket"):
        open_store(f"{kind}://{bucket}/key")


@pytest.mark.parametrize("path", ["a/../../b", "./a", "a//b"])
def test_a_prefix_cannot_climb(kind: str, uri: str, path: str) -> None:
    with pytest.raises(StorageError, match="no key"):
        open_store(f"{kind}://bucket-name/{path}")


@pytest.mark.parametrize("key", ["a b", "a%20b", "a%2Fb", "ü", "a#b?c=d&e", "a+b", "day=1/part[0]*"])
def test_odd_names_come_back_as_they_are(uri: str, key: str) -> None:
    store = open_store(uri)
    store.put_bytes(b"1", f"odd/{key}")
    assert [file.key for file in store.list("odd")] == [f"odd/{key}"]
    assert store.read(f"odd/{key}") == b"1"


def test_what_a_list_says_of_a_file_is_what_the_file_says(uri: str) -> None:
    store = open_store(uri)
    store.put_bytes(b"1", "key")
    assert store.list()[0].version == store.stat("key").version
    assert len(store.stat("key").token) == 32


def test_a_failing_source_is_no_failing_store(uri: str) -> None:
    class Breaks(io.BytesIO):
        def read(self, size: int | None = -1, /) -> bytes:
            if self.tell():
                raise OSError("disk gone")
            return super().read(size)

    store = store_in_parts(uri, PART_SIZE)
    with pytest.raises(OSError, match="disk gone"):
        store.write(Breaks(LARGE), len(LARGE), "key")
    assert not store.exists("key")


def test_an_upload_ends_where_the_right_to_it_ends(uri: str) -> None:
    store, sent = store_in_parts(uri, PART_SIZE), []

    def lose_the_job(count: int) -> None:
        sent.append(count)
        raise LeaseUnproven("another has the job")

    with pytest.raises(LeaseUnproven):
        store.write(io.BytesIO(LARGE), len(LARGE), "key", lose_the_job)
    assert len(sent) == 1 and not store.exists("key")


def test_a_file_that_is_replaced_while_it_is_read_is_no_file(uri: str) -> None:
    store = open_store(uri)
    store.put_bytes(b"first", "key")
    with store.open_file("key") as file:
        store.delete("key")
        store.put_bytes(b"other", "key")
        with pytest.raises(StorageError, match="was replaced while it was read"):
            file.read(5)


def test_a_write_within_a_time_is_tried_once(uri: str, server: Relay) -> None:
    store = open_store(uri)
    server.interrupt = lambda request, forward: Reply(status=503)
    before = len(server.asked)
    with pytest.raises(StorageError):
        store.put_bytes(b"manifest", "key", within=timedelta(seconds=20))
    assert [each.method for each in server.asked[before:]] in (["PUT"], ["POST"])


def test_google_without_credentials_is_said(
    gs_uri: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    name = "GOOGLE_APPLICATION_CREDENTIALS"
    monkeypatch.delenv("STORAGE_EMULATOR_HOST")
    monkeypatch.setenv(name, f"{tmp_path}/absent.json")
    with pytest.raises(StorageError, match=r"absent\.json") as refusal:
        open_store(gs_uri)
    assert name in refusal.value.hint and not refusal.value.retryable


@pytest.mark.parametrize("code", ["BlobArchived", "BlobImmutableDueToPolicy", "ContainerBeingDeleted"])
def test_a_conflict_of_azure_is_no_published_key(az_uri: str, azure_server: Relay, code: str) -> None:
    """Its status is that of a key that exists; its code says what is wrong."""
    store = open_store(az_uri)
    azure_server.interrupt = lambda request, forward: Reply(status=409, headers={"x-ms-error-code": code})
    for use in (store.stat, store.delete):
        with pytest.raises(StorageError, match=code) as refusal:
            use("key")
        assert not refusal.value.retryable


def test_azure_without_an_account_is_said(az_uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AZURE_STORAGE_SERVICE_ENDPOINT")
    monkeypatch.delenv("AZURE_STORAGE_ACCOUNT")
    with pytest.raises(StorageError, match="no account is named"):
        open_store(az_uri)


def test_a_wrong_key_of_azure_is_refused_and_not_shown(az_uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AZURE_STORAGE_KEY", "c2VjcmV0LW9mLXRoZS10ZXN0cw==")
    with pytest.raises(StorageError, match="AuthorizationFailure") as refusal:
        open_store(az_uri).put_bytes(b"1", "key")
    assert "c2VjcmV0" not in f"{refusal.value}{refusal.value.hint}" and not refusal.value.retryable


@pytest.mark.parametrize("name", ["OSS_ENDPOINT", "OSS_ACCESS_KEY_ID", "OSS_ACCESS_KEY_SECRET"])
def test_oss_without_what_it_needs_is_said(name: str, oss_uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(name)
    with pytest.raises(StorageError, match="is set") as refusal:
        open_store(oss_uri)
    assert name.rpartition("_")[0] in refusal.value.hint and not refusal.value.retryable


def test_oss_is_asked_by_its_own_host_names(oss_uri: str, oss_server: Relay) -> None:
    open_store(oss_uri).put_bytes(b"1", "key")
    bucket = oss_uri.split("/")[2]
    assert {each.host for each in oss_server.asked} == {f"{bucket}.s3.oss-cn-hangzhou.aliyuncs.com"}
    assert all(each.headers["authorization"].startswith("AWS ") for each in oss_server.asked)
    creating = [each for each in oss_server.asked if each.method == "PUT"]
    assert creating and all(each.headers["x-oss-forbid-overwrite"] == "true" for each in creating)


def test_a_bucket_of_oss_that_overwrites_is_refused(oss_uri: str, oss_server: Relay) -> None:
    """As one does whose versioning is on: OSS then takes no notice of the header."""

    def take_no_notice(request: Request, forward: Forward) -> Reply:
        headers = {name: value for name, value in request.headers.items() if "forbid" not in name}
        return forward(replace(request, headers=headers))

    oss_server.interrupt = take_no_notice
    with pytest.raises(StorageError, match="written twice") as refusal:
        open_store(oss_uri).put_bytes(b"1", "key")
    assert not refusal.value.retryable


def test_links_of_azure_read_one_blob_for_a_while(az_uri: str) -> None:
    import urllib.request

    store = open_store(az_uri)
    store.put_bytes(b"package", "user.pt2")
    link = store.link("user.pt2", timedelta(minutes=1))
    assert link is not None
    with urllib.request.urlopen(link) as answer:
        assert answer.read() == b"package"


def test_google_without_a_signing_key_offers_no_link(gs_uri: str) -> None:
    assert open_store(gs_uri).link("user.pt2", timedelta(minutes=1)) is None


@pytest.mark.parametrize(("scheme", "library"), [("gs", "google.api_core"), ("az", "azure.core")])
def test_a_library_that_is_not_installed_is_named(scheme: str, library: str) -> None:
    program = (
        f"import sys; sys.modules['{library}'] = None\n"
        "from exporter.storage.open import open_store\n"
        f"try: open_store('{scheme}://bucket/x')\n"
        "except Exception as error: print(type(error).__name__, error.hint)"
    )
    told = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert told == f"InvalidSpec install it with: pip install 'slipway[{scheme}]'\n"
