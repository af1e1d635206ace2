"""The environment of a real attempt, and its resource limits."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from exporter.errors import UriNotAllowed
from jobs.diagnostics.logs import MemoryLogs
from jobs.lease.leases import Holding
from processes.guarded_process import GuardedProcess
from tests.architecture.tree import ROOT
from tests.jobs.factories import CONFIG_TEXT, MINUTE
from tests.worker.conftest import ATTEMPT_ENVIRONMENT
from worker.attempt.workspace import Workspace, open_workspace
from worker.environment.attempt_environment import (
    AttemptEnvironment,
    make_attempt_environment,
    schemes_of,
)
from worker.launch import CommandLauncher, RanksLauncher
from worker.settings import AttemptEnvironmentSettings
from worker.supervisor import Supervisor

SECRETS = {
    "SLIPWAY_REDIS_URL": "redis://:planted-redis@127.0.0.1/0",
    "REDIS_PASSWORD": "planted-redis",
    "SLIPWAY_API_KEYS_FILE": "/run/planted-keys",
    "SLIPWAY_WEBHOOK_SECRETS": "whsec_planted",
    "SLIPWAY_CALLBACK_SECRETS": "whsec_planted",
    "SLIPWAY_SIGNING_KEY": "planted-signing-key",
    "SLIPWAY_API_KEY": "planted-api-key",
    "GITHUB_TOKEN": "planted-token",
    "OTEL_EXPORTER_OTLP_HEADERS": "authorization=planted",
}


@contextmanager
def ranks_of(workspace: Workspace, count: int) -> Iterator[list[int]]:
    """Return the numbers of an attempt's real processes as soon as there are any; ranks are forks."""
    process = RanksLauncher(ATTEMPT_ENVIRONMENT).start(workspace, ranks=count)
    try:
        deadline = time.monotonic() + 60
        while not (found := _processes_of(process)):
            assert time.monotonic() < deadline and process.exit_status() is None, process.last_lines(20)
            time.sleep(0.05)
        yield found
    finally:
        process.stop()


def _processes_of(process: GuardedProcess) -> list[int]:
    ours = f"worker.attempt.ranks\0{process.log.parent}".encode()
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            begun = (folder / "cmdline").read_bytes()
            if ours in begun and b"processes.guard" not in begun:
                found.append(int(folder.name))
        except OSError:
            continue
    return found


def environment_of(pid: int) -> dict[str, str]:
    pairs = Path(f"/proc/{pid}/environ").read_bytes().decode().split("\0")
    return dict(pair.partition("=")[::2] for pair in pairs if pair)


@pytest.mark.slow
def test_real_ranks_see_no_secret_and_are_limited(
    holding: Holding, worker_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {**SECRETS, "AWS_ACCESS_KEY_ID": "AKIAUSED"}.items():
        monkeypatch.setenv(name, value)
    with open_workspace(holding.job, CONFIG_TEXT, worker_dir) as workspace, ranks_of(workspace, 2) as ranks:
        for pid in ranks:
            seen = environment_of(pid)
            assert "planted" not in repr(seen)
            assert (seen["AWS_ACCESS_KEY_ID"], seen["TMPDIR"]) == ("AKIAUSED", str(workspace.tmp))
            limits = Path(f"/proc/{pid}/limits").read_text()
            told = {line[:26].strip(): line[26:].split()[:2] for line in limits.splitlines()}
            assert told["Max core file size"] == ["0", "0"]
            assert told["Max file size"] == [str(1 << 40)] * 2
            assert max(map(int, told["Max open files"])) <= 65_536
            assert told["Max address space"][0] == "unlimited"  # mapped tables take more than there is


def test_a_workers_attempt_gets_no_family_of_its_environment(
    holding: Holding, worker_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only `slipway export` names one, for the attempts that it starts itself."""
    monkeypatch.setenv("SLIPWAY_OWN_FAMILY", '{"kind": "file"}')
    monkeypatch.setenv("SLIPWAY_FAMILIES", "listed")
    command = (sys.executable, "-c", "import os; print(sorted(os.environ))")
    with open_workspace(holding.job, CONFIG_TEXT, worker_dir) as workspace:
        process = CommandLauncher(command, ATTEMPT_ENVIRONMENT).start(workspace, ranks=1)
        assert process.wait() == 0
        said = process.last_lines(1)
        process.stop()
    assert "'SLIPWAY_FAMILIES'" in said and "SLIPWAY_OWN_FAMILY" not in said


@pytest.mark.parametrize("name", sorted(SECRETS))
def test_a_secret_is_not_among_what_is_passed_on(name: str) -> None:
    assert not ATTEMPT_ENVIRONMENT.make_confinement().permits(name)


@pytest.mark.parametrize("name", ["PATH", "PYTHONPATH", "LC_ALL", "AWS_PROFILE", "SLIPWAY_CODE_CACHE", "CXX"])
def test_what_it_needs_is_passed_on(name: str) -> None:
    assert ATTEMPT_ENVIRONMENT.make_confinement().permits(name)


@pytest.mark.parametrize(
    ("schemes", "seen"),
    [
        ((), {"AWS_SECRET_ACCESS_KEY"}),
        (("s3", "gs"), {"AWS_SECRET_ACCESS_KEY", "GOOGLE_APPLICATION_CREDENTIALS"}),
        (("oss",), {"OSS_ACCESS_KEY_SECRET", "ALIBABA_CLOUD_ACCESS_KEY_SECRET"}),
        (("gs",), {"GOOGLE_APPLICATION_CREDENTIALS"}),
        (("az",), {"AZURE_STORAGE_KEY", "AZURE_FEDERATED_TOKEN_FILE"}),
    ],
)
def test_only_the_stores_that_it_uses_are_opened_to_it(schemes: tuple[str, ...], seen: set[str]) -> None:
    secrets = {
        *("AWS_SECRET_ACCESS_KEY", "OSS_ACCESS_KEY_SECRET", "ALIBABA_CLOUD_ACCESS_KEY_SECRET"),
        *("GOOGLE_APPLICATION_CREDENTIALS", "AZURE_STORAGE_KEY", "AZURE_FEDERATED_TOKEN_FILE"),
    }
    confinement = ATTEMPT_ENVIRONMENT.make_confinement(schemes)
    assert {name for name in secrets if confinement.permits(name)} == seen


def test_the_stores_that_an_attempt_uses_are_those_of_its_uris(holding: Holding, worker_dir: Path) -> None:
    spec = holding.job.spec.model_copy(
        update={
            "checkpoint_uri": "gs://train/ckpt",
            "output_uri": "az://models/feed",
            "item_input_uri": "/rows",
        }
    )
    job = holding.job.model_copy(update={"spec": spec})
    with open_workspace(job, CONFIG_TEXT, worker_dir) as workspace:
        assert schemes_of(workspace, "oss://code/cache") == {"gs", "az", "oss"}
        assert schemes_of(workspace, None) == {"gs", "az"}


def test_credentials_that_cannot_be_narrowed_are_not_given(holding: Holding, worker_dir: Path) -> None:
    """SLIPWAY_STORAGE_ROLE promises that no attempt reaches what is another's."""
    settings = AttemptEnvironmentSettings(storage_role="arn:aws:iam::123456789012:role/slipway")
    spec = holding.job.spec.model_copy(update={"checkpoint_uri": "gs://train/ckpt"})
    job = holding.job.model_copy(update={"spec": spec})
    with open_workspace(job, CONFIG_TEXT, worker_dir) as workspace, pytest.raises(UriNotAllowed) as refusal:
        RanksLauncher(make_attempt_environment(settings)).start(workspace, ranks=1)
    assert "gs:// it cannot" in refusal.value.message and "SLIPWAY_STORAGE_ROLE" in refusal.value.hint


def test_an_operator_may_list_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLIPWAY_ATTEMPT_VARIABLES", "FEATURE_STORE_URL, OWN_*")
    confinement = AttemptEnvironment(settings=AttemptEnvironmentSettings()).make_confinement()
    assert confinement.permits("FEATURE_STORE_URL") and confinement.permits("OWN_THING")
    assert not confinement.permits("FEATURE_STORE_URLS")


def _told_by(command: str, settings: AttemptEnvironmentSettings, holding: Holding, worker_dir: Path) -> str:
    launcher = CommandLauncher(("/bin/sh", "-c", command), AttemptEnvironment(settings=settings))
    supervisor = Supervisor(launcher, worker_dir=worker_dir, time_limit=MINUTE, logs=MemoryLogs())
    job = supervisor.run(holding)
    assert job is not None and job.failure is not None
    return job.failure.message


def test_a_file_that_grows_without_end_is_stopped(holding: Holding, worker_dir: Path) -> None:
    settings = AttemptEnvironmentSettings(attempt_file_bytes=1 << 20)
    command = "head -c 5000000 /dev/zero > $TMPDIR/f; stat -c size=%s $TMPDIR/f; exit 1"
    assert "size=1048576" in _told_by(command, settings, holding, worker_dir)


def test_files_are_not_opened_without_end(holding: Holding, worker_dir: Path) -> None:
    opening = f"{sys.executable} -c 'f = [open(\"/dev/null\") for _ in range(400)]'"
    settings = AttemptEnvironmentSettings(attempt_open_files=256)
    assert "Too many open files" in _told_by(f"{opening}; exit 1", settings, holding, worker_dir)


NOBODY = 65534
_HOLDS_A_SECRET = f"""
import ctypes, os, sys, time
from processes.privacy import keep_private
os.setgid({NOBODY}); os.setuid({NOBODY})
ctypes.CDLL(None).prctl(4, 1, 0, 0, 0)  # what changes its user is private by that alone
if sys.argv[1] == "private":
    keep_private()
print("ready", flush=True)
time.sleep(60)
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="becomes another user, as root could read everything")
@pytest.mark.parametrize(("how", "readable"), [("private", False), ("open", True)])
def test_a_private_process_is_not_read_by_another_of_its_user(how: str, readable: bool) -> None:
    """The worker's environment holds more than its attempts may see."""
    program = [sys.executable, "-c", _HOLDS_A_SECRET, how]
    environment = {"PYTHONPATH": str(ROOT), "HELD": "planted"}
    with subprocess.Popen(program, env=environment, stdout=subprocess.PIPE) as holder:
        try:
            assert holder.stdout is not None and holder.stdout.readline() == b"ready\n"
            reader = ["cat", f"/proc/{holder.pid}/environ"]
            read = subprocess.run(reader, user=NOBODY, group=NOBODY, capture_output=True, check=False)
        finally:
            holder.kill()
    assert (b"planted" in read.stdout) == readable
