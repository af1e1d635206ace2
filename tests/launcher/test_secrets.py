"""A job leaves no secret behind, however hard its attempt tries to leak one."""

import io
import json
import sys
import urllib.request
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from exporter.spec import ExportSpec
from jobs.model import JobState
from launcher.up import Stack, running_stack
from service.client.watch import watch
from slipway.client import Client
from tests.launcher.conftest import fake_ranks
from tests.service.requests import export_request

PLANTED = "pLanTed0123456789"
SECRETS = {
    "AWS_ACCESS_KEY_ID": "AKIAEXAMPLE",
    "AWS_SECRET_ACCESS_KEY": f"{PLANTED}/of+the+store",
    "AWS_SESSION_TOKEN": f"{PLANTED}-session",
    "SLIPWAY_WEBHOOK_SECRETS": "whsec_" + "cExhblRlZDAxMjM0NTY3ODk=",  # what a base64 of it would show
}
# Tells all it knows: in its log, bare and as URIs, in evidence, and in the outcome.
BLABS = """
import json, os, pathlib, sys
workspace = pathlib.Path(sys.argv[1])
known = os.environ["AWS_SECRET_ACCESS_KEY"]
print(dict(os.environ), flush=True)
print("bare", known, f"s3://id:{known}@bucket/x", f"https://h/?X-Amz-Signature={known}", flush=True)
evidence = workspace / "user" / "evidence"
evidence.mkdir(parents=True)
(evidence / "traceback.txt").write_text(f"AWS_SECRET_ACCESS_KEY={known} https://u:{known}@h/")
failure = {"code": "trace_failed", "message": f"with {known}", "hint": known, "report": f"at {known}"}
outcome = {"towers": [{"tower": "user", "failure": failure}, {"tower": "item", "failure": failure}]}
(workspace / "outcome.json").write_text(json.dumps(outcome))
"""


@pytest.fixture
def blabbing(tmp_path: Path) -> Iterator[Stack]:
    settings = {**fake_ranks("succeed", tmp_path), **SECRETS}
    settings["SLIPWAY_ATTEMPT_COMMAND"] = json.dumps([sys.executable, "-c", BLABS])
    with running_stack(tmp_path / "data", environment=settings) as stack:
        yield stack


def test_nothing_that_a_job_leaves_holds_a_secret(blabbing: Stack, tmp_path: Path) -> None:
    client = Client(blabbing.url)
    spec = ExportSpec.model_validate(export_request(output_uri=str(tmp_path / "out")))
    job = watch(client, client.submit(spec).id, lambda job: None)
    assert job.state is JobState.FAILED
    assert job.towers[0].failure is not None and "with …" in job.towers[0].failure.message
    left = dict(_left_by(blabbing, job.id))
    assert len(left) > 10 and any(b"bare" in data for data in left.values())
    assert [place for place, data in left.items() if PLANTED.encode() in data] == []


def _left_by(stack: Stack, job_id: str) -> Iterator[tuple[str, bytes]]:
    """Return everything that can be read about a job: through the API, in Redis, in files and logs."""
    for path in ("", "/log", "/bundle?tower=user", "/manifest"):
        yield f"GET {path}", _read(f"{stack.url}/exports/{job_id}{path}")
    yield "page", _read(f"{stack.url}/jobs/{job_id}")
    with zipfile.ZipFile(io.BytesIO(_read(f"{stack.url}/exports/{job_id}/bundle?tower=user"))) as bundle:
        for name in bundle.namelist():
            yield f"bundle {name}", bundle.read(name)
    client = redis.Redis.from_url(stack.redis_url)
    client.config_set("rdbcompression", "no")  # what is dumped is then as it was written
    for key in client.scan_iter(count=1000):
        yield f"redis {key!r}", client.dump(key) or b""
    client.close()
    for file in stack.data_dir.rglob("*"):
        if file.is_file():
            yield str(file), file.read_bytes()


def _read(url: str) -> bytes:
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:
            data: bytes = answer.read()
            return data
    except urllib.error.HTTPError as error:
        with error:
            return error.read()
