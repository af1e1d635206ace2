"""The files in a failure's bundle, and what is kept out of them."""

import io
import json
import random
import zipfile
from pathlib import Path

import pytest

from exporter.attempt.attempt import DIAGNOSTICS
from exporter.redaction import redact
from exporter.spec import TowerName
from exporter.stages import Stage
from jobs.diagnostics.bundles import MAX_BYTES
from jobs.diagnostics.logs import LogPart
from jobs.model import Job, JobState
from jobs.spec import JobSpec
from tests.jobs.factories import make_failure, make_job, make_spec
from tests.service.requests import CONFIG
from worker.attempt.bundle_zip import build_bundle
from worker.attempt.workspace import Workspace

LOG = (LogPart(tower=TowerName.USER, stage=Stage.TRACE, lines=("begun", "torch says no")),)


@pytest.fixture
def job() -> Job:
    spec = make_spec(config=CONFIG.read_text(), checkpoint_uri="s3://me:pass@store/ckpt")
    return make_job(JobState.RUNNING).model_copy(update={"spec": JobSpec.of(spec)})


def evidence(workspace: Path, tower: str, name: str, text: str) -> None:
    folder = workspace / tower / DIAGNOSTICS
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(text)


def workspace(path: Path) -> Workspace:
    return Workspace(path, artifact_uri="unwritten")


def unpacked(content: bytes) -> dict[str, str]:
    with zipfile.ZipFile(io.BytesIO(content)) as bundle:
        assert bundle.testzip() is None
        return {name: bundle.read(name).decode() for name in bundle.namelist()}


def test_it_says_what_was_asked_what_was_planned_and_what_happened(job: Job, tmp_path: Path) -> None:
    evidence(tmp_path, "user", "sizes.txt", "batch: 2")
    evidence(tmp_path, "item", "sizes.txt", "of the other tower")
    files = unpacked(
        build_bundle(job, CONFIG.read_text(), TowerName.USER, make_failure(), workspace(tmp_path), LOG)
    )
    assert json.loads(files["failure.json"])["failure"]["code"] == "trace_failed"
    assert json.loads(files["plan.json"])["user"]["dims"][0]["name"] == "batch"
    assert files["pipeline.config"] == CONFIG.read_text()
    assert json.loads(files["versions.json"]).keys() >= {"slipway", "python", "torch"}
    assert files["log.txt"] == "== user trace\nbegun\ntorch says no\n"
    assert files["sizes.txt"] == "batch: 2"


def test_of_a_whole_attempt_it_holds_every_towers(job: Job, tmp_path: Path) -> None:
    for tower in ("user", "item"):
        evidence(tmp_path, tower, "traceback.txt", tower)
    files = unpacked(build_bundle(job, CONFIG.read_text(), None, make_failure(), workspace(tmp_path), ()))
    assert (files["user/traceback.txt"], files["item/traceback.txt"]) == ("user", "item")


def test_a_config_that_does_not_parse_is_no_obstacle(job: Job, tmp_path: Path) -> None:
    wrong = job.model_copy(update={"spec": JobSpec.of(make_spec(config="nonsense {"))})
    files = unpacked(build_bundle(wrong, "nonsense {", None, make_failure(), workspace(tmp_path), ()))
    assert json.loads(files["plan.json"])["code"] == "invalid_pipeline_config"


def test_it_is_small_whatever_the_stages_had(job: Job, tmp_path: Path) -> None:
    noise = random.Random(7).randbytes(3 << 20).hex()
    for name in ("a.txt", "b.txt", "c.txt", "d.txt"):
        evidence(tmp_path, "user", name, noise)
    content = build_bundle(job, CONFIG.read_text(), TowerName.USER, make_failure(), workspace(tmp_path), LOG)
    files = unpacked(content)
    assert len(content) <= MAX_BYTES
    assert 0 < len(files["a.txt"]) < len(noise) and files["left_out.txt"] == "d.txt\n"


@pytest.mark.parametrize(
    ("said", "kept"),
    [
        ("s3://me:pass@store/x", "s3://…@store/x"),
        ("https://s/x?X-Amz-Signature=abc&part=1", "https://s/x?X-Amz-Signature=…&part=1"),
        ("Authorization: Bearer abc.def", "Authorization: Bearer …"),
        ("AWS_SECRET_ACCESS_KEY=abc", "AWS_SECRET_ACCESS_KEY=…"),
        ('"password": "abc",', '"password": "…",'),
        ("feature user_id: batch 2", "feature user_id: batch 2"),
    ],
)
def test_it_holds_no_secrets(said: str, kept: str) -> None:
    assert redact(said) == kept
