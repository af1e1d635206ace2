"""Parquet files are found and streamed, and what cannot be read is said."""

import hashlib
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import boto3
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from exporter.data.parquet import open_parquet
from exporter.errors import InvalidRows, InvalidSpec, SourceNotFound, StorageError
from exporter.storage.open import open_store


def write(path: Path, values: list[int]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"a": values, "b": [str(v) for v in values]}), path)
    return path


def values_of(uri: str | Path, rows_per_batch: int = 2) -> list[int]:
    batches = open_parquet(str(uri)).batches(["a"], rows_per_batch=rows_per_batch)
    return [value for batch in batches for value in batch.table["a"].to_pylist()]


def test_streams_batches_that_know_their_place(tmp_path: Path) -> None:
    file = write(tmp_path / "rows.parquet", [1, 2, 3])
    batches = list(open_parquet(str(file)).batches(["a"], rows_per_batch=2))
    assert [(batch.first_row, batch.table.to_pydict()) for batch in batches] == [
        (0, {"a": [1, 2]}),
        (2, {"a": [3]}),
    ]
    assert {batch.where for batch in batches} == {str(file)}


@pytest.mark.parametrize(
    "uri",
    [
        "file://{}/d/1.parquet",
        "file://localhost{}/d/1.parquet",
        "{}/d",
        "{}/d/",
        "{}/d/*.parquet",
        "{}/*/[1].parquet",
        "{}/d/1.parquet",
    ],
)
def test_opens_files_folders_and_patterns(tmp_path: Path, uri: str) -> None:
    write(tmp_path / "d" / "1.parquet", [1, 2])
    write(tmp_path / "d" / ".tmp.parquet", [9])
    (tmp_path / "d" / "_SUCCESS").touch()
    assert values_of(uri.format(tmp_path)) == [1, 2]


def test_linked_folders_are_read_once(tmp_path: Path) -> None:
    write(tmp_path / "elsewhere" / "1.parquet", [1, 2])
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "link").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "elsewhere" / "back").symlink_to(tmp_path / "d")
    assert values_of(tmp_path / "d") == values_of(f"{tmp_path}/d/*/*.parquet") == [1, 2]


def test_reads_several_files_in_the_order_of_their_names(tmp_path: Path) -> None:
    for name, values in (("b", [3]), ("a", [1, 2]), ("empty", [])):
        write(tmp_path / f"{name}.parquet", values)
    assert values_of(tmp_path) == [1, 2, 3]
    assert values_of(f"{tmp_path}/b.parquet,{tmp_path}/a.parquet") == [3, 1, 2]


def test_reads_a_relative_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write(Path("rows.parquet"), [1])
    assert values_of("rows.parquet") == [1]


def test_digests_one_file_as_sha256sum_does(tmp_path: Path) -> None:
    file = write(tmp_path / "rows.parquet", [1])
    assert open_parquet(str(file)).sha256() == hashlib.sha256(file.read_bytes()).hexdigest()


def test_digests_several_files_together(tmp_path: Path) -> None:
    for name, value in (("a", 1), ("b", 2)):
        write(tmp_path / f"{name}.parquet", [value])
    before = open_parquet(str(tmp_path)).sha256()
    write(tmp_path / "b.parquet", [3])
    assert open_parquet(str(tmp_path)).sha256() != before


@pytest.mark.parametrize("uri", ["{}/none.parquet", "{}/none/*.parquet", "{}/empty"])
def test_a_uri_that_names_nothing_is_said(tmp_path: Path, uri: str) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(SourceNotFound, match="names no parquet file"):
        open_parquet(uri.format(tmp_path))


@pytest.mark.parametrize(
    "uri",
    ["ftp://bucket/rows", "", "/a.parquet,s3://b/c,file:///d", "/a.parquet,s3://b/c", "file://elsewhere/a"],
)
def test_a_place_it_cannot_read_from_is_said(uri: str) -> None:
    with pytest.raises(InvalidSpec, match="rows cannot be read from"):
        open_parquet(uri)


def test_a_file_without_rows_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidRows, match=r"rows.parquet has no rows"):
        values_of(write(tmp_path / "rows.parquet", []))


def test_a_missing_column_is_named(tmp_path: Path) -> None:
    source = open_parquet(str(write(tmp_path / "rows.parquet", [1])))
    with pytest.raises(InvalidRows, match=r"rows.parquet has no column 'c'") as caught:
        list(source.batches(["a", "c"]))
    assert "a, b" in caught.value.hint


def test_a_file_without_columns_says_so(tmp_path: Path) -> None:
    pq.write_table(pa.table({}), tmp_path / "rows.parquet")
    with pytest.raises(InvalidRows) as caught:
        values_of(tmp_path / "rows.parquet")
    assert caught.value.hint.endswith("the file has none")


def test_two_columns_of_one_name_are_refused_if_it_is_read(tmp_path: Path) -> None:
    file = tmp_path / "rows.parquet"
    columns = [pa.array([value]) for value in (1, 2, 3)]
    pq.write_table(pa.table(columns, names=["a", "b", "b"]), file)
    assert values_of(file) == [1]
    with pytest.raises(InvalidRows, match=r"rows.parquet has 2 columns 'b'"):
        list(open_parquet(str(file)).batches(["a", "b"]))


@pytest.mark.parametrize("content", [b"", b"a,b\n1,2\n" * 100, b"PAR1" + b"\0" * 100 + b"PAR1"])
def test_what_is_not_parquet_is_refused(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "rows.parquet"
    file.write_bytes(content)
    with pytest.raises(InvalidRows, match=r"rows.parquet is not a readable parquet file"):
        values_of(file)


def test_a_damaged_file_is_refused(tmp_path: Path) -> None:
    file = write(tmp_path / "rows.parquet", list(range(10_000)))
    content = bytearray(file.read_bytes())
    content[100:20_000] = bytes(19_900)
    file.write_bytes(content)
    with pytest.raises(InvalidRows, match=r"rows.parquet is not a readable parquet file"):
        values_of(file)


@pytest.fixture(scope="module")
def s3_endpoint() -> Iterator[str]:
    """A running S3 server."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = subprocess.Popen(
        [sys.executable, "-m", "moto.server", "-p", str(port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    for _ in range(300):
        try:
            socket.create_connection(("127.0.0.1", port)).close()
            break
        except ConnectionRefusedError:
            time.sleep(0.1)
    yield f"http://127.0.0.1:{port}"
    server.terminate()
    server.wait()


@pytest.fixture
def bucket(s3_endpoint: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    for name, value in (
        ("AWS_ENDPOINT_URL", s3_endpoint),
        ("AWS_ACCESS_KEY_ID", "test"),
        ("AWS_SECRET_ACCESS_KEY", "test"),
    ):
        monkeypatch.setenv(name, value)
    client = boto3.client("s3", region_name="us-east-1")
    client.create_bucket(Bucket="rows")
    for name, values in (("d/a", [1, 2]), ("d/b", [3])):
        file = write(tmp_path / f"{name}.parquet", values)
        client.upload_file(str(file), "rows", f"{name}.parquet")
    return "s3://rows"


def test_reads_from_s3(bucket: str, tmp_path: Path) -> None:
    assert values_of(f"{bucket}/d/a.parquet") == [1, 2]
    assert values_of(f"{bucket}/d") == [1, 2, 3]
    assert values_of(f"{bucket}/d/*.parquet") == [1, 2, 3]
    digest = hashlib.sha256((tmp_path / "d" / "a.parquet").read_bytes()).hexdigest()
    assert open_parquet(f"{bucket}/d/a.parquet").sha256() == digest


@pytest.mark.parametrize("kind", ["oss", "gs", "az"])
def test_reads_from_other_clouds(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    """Several parts of a file are read by their ranges."""
    uri = request.getfixturevalue(f"{kind}_uri")
    for name, values in (("a", list(range(100_000))), ("b", [3])):
        open_store(uri).put(write(tmp_path / f"{name}.parquet", values), f"d/{name}.parquet")
    assert values_of(f"{uri}/d/b.parquet") == [3]
    assert values_of(f"{uri}/d") == values_of(f"{uri}/d/*.parquet") == [*range(100_000), 3]
    with pytest.raises(SourceNotFound, match="names no parquet file"):
        open_parquet(f"{uri}/none")


@pytest.mark.parametrize("uri", ["{}/none.parquet", "{}/none/*.parquet", "s3://nobody/a.parquet"])
def test_an_s3_uri_that_names_nothing_is_said(bucket: str, uri: str) -> None:
    with pytest.raises(SourceNotFound, match="names no parquet file"):
        open_parquet(uri.format(bucket))


class _Refusing(BaseHTTPRequestHandler):
    def do_HEAD(self) -> None:
        self.send_response(403)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def test_an_s3_that_refuses_is_not_asked_again(bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Refusing) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{server.server_port}")
        with pytest.raises(StorageError, match="Forbidden") as caught:
            open_parquet(f"{bucket}/d/a.parquet")
        server.shutdown()
    assert not caught.value.retryable


def test_an_s3_object_that_has_gone_is_said(bucket: str) -> None:
    source = open_parquet(f"{bucket}/d/a.parquet")
    boto3.client("s3", region_name="us-east-1").delete_object(Bucket="rows", Key="d/a.parquet")
    with pytest.raises(SourceNotFound, match=r"there is no s3://rows/d/a\.parquet"):
        source.sha256()


def test_an_unreachable_s3_is_said(bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    with pytest.raises(StorageError, match="Could not connect"):
        open_parquet(f"{bucket}/d")


def test_what_has_been_read_is_let_go(tmp_path: Path) -> None:
    """Sixty megabytes in forty row groups, of which one at a time is held."""
    numbers = np.random.default_rng(3).integers(0, 2**62, 8_000_000)
    pq.write_table(pa.table({"id": numbers}), tmp_path / "rows.parquet", row_group_size=200_000)
    del numbers
    before = pa.total_allocated_bytes()
    batches = open_parquet(str(tmp_path / "rows.parquet")).batches(["id"], rows_per_batch=100_000)
    assert max(pa.total_allocated_bytes() - before for _ in batches) < 16 << 20
