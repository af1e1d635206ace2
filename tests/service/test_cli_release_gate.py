"""The release gate on the command line: its option, the verdict at the end, and the exit code."""

import pytest

from exporter.errors import InvalidSpec
from exporter.options.release_gate import ReleaseGate
from jobs.model import Job
from jobs.stores.memory_store import MemoryJobStore
from service.client.local_job import answer_of
from service.client.watch import exit_code, show_end
from tests.jobs.factories import AS_GOOD, CONFIG_TEXT, WORSE, make_gated_job, make_job, make_report
from tests.service.conftest import Slipway
from tests.service.requests import CHECKPOINT, CONFIG, ITEMS, ROWS

SUBMIT = (
    *("submit", "--config", str(CONFIG), "--checkpoint", CHECKPOINT, "--output", "out"),
    *(*ITEMS, *ROWS),
)


def gate_of(store: MemoryJobStore) -> ReleaseGate:
    (job,) = store.page(limit=2).jobs
    assert job.spec.release_gate is not None
    return job.spec.release_gate


def test_a_gate_is_asked_for_with_its_defaults(slipway: Slipway, store: MemoryJobStore) -> None:
    assert slipway(*SUBMIT, "--release-gate") == 0
    assert gate_of(store) == ReleaseGate(rows_uri="data/eval.parquet")


def test_a_gate_has_its_settings_as_json(slipway: Slipway, store: MemoryJobStore) -> None:
    assert slipway(*SUBMIT, "--release-gate", '{"rows_uri": "/r.parquet", "auc_drop": 0.02}') == 0
    assert gate_of(store) == ReleaseGate(rows_uri="/r.parquet", auc_drop=0.02)


def test_a_setting_that_no_gate_has_is_named(slipway: Slipway) -> None:
    with pytest.raises(InvalidSpec, match="release_gate.auc_fall"):
        slipway(*SUBMIT, "--release-gate", '{"auc_fall": 1}')


@pytest.mark.parametrize("text", ["yes", "[1]", "{"])
def test_what_is_no_json_object_is_a_wrong_command_line(
    slipway: Slipway, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        slipway(*SUBMIT, "--release-gate", text)
    assert "is no JSON object" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("job", "code", "said"),
    [
        (make_gated_job(make_report(AS_GOOD)), 0, "release blessed (compared with job 0)"),
        (make_gated_job(make_report(WORSE)), 4, "release NOT BLESSED: auc of ctr failed (0.61, baseline 0.7"),
        (make_gated_job(None), 4, "NOT BLESSED: not judged"),
    ],
)
def test_watching_ends_with_the_verdict(
    slipway: Slipway,
    store: MemoryJobStore,
    job: Job,
    code: int,
    said: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    store.add(job, CONFIG_TEXT)
    assert slipway("watch", job.id) == code
    assert said in capsys.readouterr().out


def test_a_job_without_a_gate_ends_as_ever(capsys: pytest.CaptureFixture[str]) -> None:
    view = answer_of(make_job().model_copy(update={"state": "succeeded"}))
    show_end(view)
    assert exit_code(view) == 0
    assert "release" not in capsys.readouterr().out
