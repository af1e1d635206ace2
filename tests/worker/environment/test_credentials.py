"""Credentials for one job, requested from a real STS and checked by moto's implementation of IAM."""

import json
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from moto.iam.access_control import IAMPolicy, PermissionResult

from exporter.options.release_gate import ReleaseGate
from exporter.spec import ExportSpec
from jobs.diagnostics.logs import MemoryLogs
from jobs.lease.leases import Holding
from jobs.model import JobState
from tests.jobs.factories import MINUTE
from worker.environment.attempt_environment import make_attempt_environment
from worker.environment.credentials import make_policy
from worker.launch import CommandLauncher
from worker.settings import AttemptEnvironmentSettings
from worker.supervisor import Supervisor

ROLE = "arn:aws:iam::123456789012:role/slipway"
SPEC = ExportSpec(
    config_uri="s3://train/feed/pipeline.config",
    checkpoint_uri="s3://train/feed/ckpt-11",
    item_input_uri="s3://rows/items/part-*.parquet, s3://rows/more.parquet",
    sample_input_uri="/mnt/local.parquet",
    assets_uri="s3://train/words",
    output_uri="s3://models/feed/",
)
ARN = "arn:aws:s3:::"
SHOW = """import botocore.session
found = botocore.session.get_session().get_credentials().get_frozen_credentials()
print("used:", found.access_key, "token:", bool(found.token))"""


def may(action: str, resource: str) -> bool:
    policy = IAMPolicy(json.dumps(make_policy(SPEC, "s3://models/feed/job", "s3://models/code")))
    return policy.is_action_permitted(action, ARN + resource) is PermissionResult.PERMITTED


@pytest.mark.parametrize(
    ("action", "resource"),
    [
        ("s3:GetObject", "train/feed/pipeline.config"),
        ("s3:GetObject", "train/feed/ckpt-11/model/.metadata"),
        ("s3:GetObject", "rows/items/part-7.parquet"),
        ("s3:GetObject", "rows/more.parquet"),
        ("s3:GetObject", "train/words/data/tokenizer.json"),
        ("s3:PutObject", "models/feed/job/manifest.json"),
        ("s3:DeleteObject", "models/feed/job/user/aoti/aoti_model.pt2"),
        ("s3:PutObject", "models/code/requests/x.json"),
        ("s3:GetObject", "models/code/requests/x.json"),
        ("s3:ListMultipartUploadParts", "models/feed/job/x"),
    ],
)
def test_what_the_job_needs_is_allowed(action: str, resource: str) -> None:
    assert may(action, resource)


@pytest.mark.parametrize(
    ("action", "resource"),
    [
        ("s3:GetObject", "train/feed/ckpt-110/model/.metadata"),  # another checkpoint, by a longer name
        ("s3:GetObject", "train/other/ckpt-11/model/.metadata"),
        ("s3:PutObject", "train/feed/ckpt-11/model/.metadata"),
        ("s3:GetObject", "models/feedback/x"),
        ("s3:PutObject", "models/feed2/x"),
        ("s3:PutObject", "models/feed/other/manifest.json"),  # another job's, below the same output
        ("s3:DeleteObject", "models/feed/other/manifest.json"),
        ("s3:GetObject", "models/feed/other/manifest.json"),
        ("s3:DeleteObject", "models/feed/job2/manifest.json"),
        ("s3:PutObject", "models/feed/x"),
        ("s3:DeleteObject", "models/code/requests/x.json"),  # of the cache that all jobs share
        ("s3:GetObject", "rows/users/part-7.parquet"),
        ("s3:PutBucketPolicy", "models"),
        ("s3:GetObject", "elsewhere/x"),
    ],
)
def test_nothing_else_is(action: str, resource: str) -> None:
    assert not may(action, resource)


def test_a_job_on_this_machine_alone_may_nothing() -> None:
    spec = ExportSpec(config_uri="/a", checkpoint_uri="/b", output_uri="/c")
    policy = IAMPolicy(json.dumps(make_policy(spec, "/c/job", None)))
    assert policy.is_action_permitted("s3:GetObject", ARN + "x/y") is PermissionResult.DENIED


def test_a_policy_with_every_place_is_no_longer_than_sts_takes() -> None:
    artifact = "s3://models/feed/01jd6v7x4mzq3w8c5kftn2rbha/cpu-x86"
    policy = make_policy(SPEC, artifact, "s3://models/code")
    assert len(json.dumps(policy, separators=(",", ":"))) < 2048 - 200  # for longer names


def test_a_release_gate_reads_its_rows_and_the_earlier_release_and_writes_neither() -> None:
    gate = ReleaseGate(rows_uri="s3://rows/held-out/part-*.parquet")
    spec = SPEC.model_copy(update={"release_gate": gate})
    earlier = "s3://models/feed/01jd6v7x4mzq3w8c5kftn2rbha"
    text = json.dumps(make_policy(spec, "s3://models/feed/job", "s3://models/code", [earlier]))
    assert len(text) < 2048
    policy = IAMPolicy(text)
    for action, resource, permitted in (
        ("s3:GetObject", "rows/held-out/part-3.parquet", True),
        ("s3:GetObject", "models/feed/01jd6v7x4mzq3w8c5kftn2rbha/manifest.json", True),
        ("s3:PutObject", "models/feed/01jd6v7x4mzq3w8c5kftn2rbha/release.json", False),
        ("s3:DeleteObject", "models/feed/01jd6v7x4mzq3w8c5kftn2rbha/manifest.json", False),
        ("s3:GetObject", "models/feed/01jd6v7x4mzq3w8c5kftn2rbhb/manifest.json", False),
    ):
        found = policy.is_action_permitted(action, ARN + resource) is PermissionResult.PERMITTED
        assert found is permitted, (action, resource)


def test_an_output_is_no_pattern() -> None:
    spec = SPEC.model_copy(update={"output_uri": "s3://models/*"})
    text = json.dumps(make_policy(spec, "s3://models/*/job", None))
    assert '"arn:aws:s3:::models/${*}/job/*"' in text and "models/*" not in text


@pytest.fixture(scope="module")
def sts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a running STS."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with (tmp_path_factory.mktemp("sts") / "log").open("wb") as log:
        command = ["env", "MOTO_SERVICE=sts", sys.executable, "-m", "moto.server", "-p", str(port)]
        server = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
    try:
        deadline = time.monotonic() + 60
        while not answers(port):
            assert time.monotonic() < deadline and server.poll() is None
            time.sleep(0.1)
        yield f"http://127.0.0.1:{port}"
    finally:
        server.terminate()
        server.wait(timeout=10)


def answers(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@pytest.fixture
def own_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    own = {
        "AWS_ACCESS_KEY_ID": "AKIAWORKER",
        "AWS_SECRET_ACCESS_KEY": "of-the-worker",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_CONFIG_FILE": "/dev/null",
        "AWS_SHARED_CREDENTIALS_FILE": "/dev/null",
    }
    for name, value in own.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("AWS_PROFILE", raising=False)


def ended(command: str, holding: Holding, worker_dir: Path) -> tuple[JobState, str]:
    settings = AttemptEnvironmentSettings(storage_role=ROLE, storage_role_lifetime=timedelta(minutes=20))
    launcher = CommandLauncher(("/bin/sh", "-c", command), make_attempt_environment(settings))
    job = Supervisor(launcher, worker_dir=worker_dir, time_limit=MINUTE, logs=MemoryLogs()).run(holding)
    assert job is not None and job.failure is not None
    return job.state, job.failure.message


def test_an_attempt_gets_the_role_s_credentials_and_not_the_worker_s(
    sts: str, own_credentials: None, holding: Holding, worker_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", sts)
    command = f"env | grep ^AWS_ | sort; {sys.executable} -c '{SHOW}'; exit 1"
    _, message = ended(command, holding, worker_dir)
    assert "used: ASIA" in message and "token: True" in message
    assert f"AWS_ENDPOINT_URL={sts}" in message
    assert "AKIAWORKER" not in message and "of-the-worker" not in message
    assert "AWS_SHARED_CREDENTIALS_FILE=/dev/null" in message


def test_without_them_the_attempt_is_not_begun_and_may_be_later(
    own_credentials: None, holding: Holding, worker_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    state, message = ended("exit 1", holding, worker_dir)
    assert state is JobState.QUEUED
    assert f"no credentials of {ROLE}" in message
