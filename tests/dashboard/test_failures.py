"""Failures on a job's page: where they are shown, how they are counted, and when a retry is offered."""

import re

import pytest
from starlette.testclient import TestClient

from exporter.errors import CheckpointMismatch
from exporter.outcome import Failure
from exporter.spec import TowerName
from exporter.stages import Stage
from jobs.model import Job, JobState
from jobs.stores.memory_store import MemoryJobStore
from service.dashboard.job.failures import AFTER_REPAIR, FailureView, Mismatch
from tests.architecture.tree import ROOT
from tests.dashboard import sample

ROW = re.compile(r"^\| (`[^|]+`) \| ([^|]+) \|", re.MULTILINE)


def page_of(client: TestClient, store: MemoryJobStore, job: Job) -> str:
    store.add(job, sample.CONFIG_TEXT)
    return " ".join(client.get(f"/jobs/{job.id}").text.split())


def card_of(text: str, tower: str) -> str:
    [card] = re.findall(rf'<section class="card tower \w+" id="tower-{tower}".*?</section>', text)
    return str(card)


def test_a_mismatch_is_counted_and_listed_by_name(client: TestClient, store: MemoryJobStore) -> None:
    card = card_of(page_of(client, store, sample.mismatched()), "model")
    counts = (
        "<strong>2</strong> missing, <strong>1</strong> unexpected, <strong>1</strong> mismatched tensors"
    )
    said = [counts, "expected by the model", "item.dense.0.bias", "float32 [64, 48]", "float32 [64, 32]"]
    places = [card.index(each) for each in said]
    assert places == sorted(places)
    assert "use the pipeline config this checkpoint was trained with" in card


def test_a_report_that_was_cut_says_how_many_it_lacks() -> None:
    names = [f"tower.layer.{number}.weight" for number in range(2000)]
    view = FailureView.of(Failure.of(CheckpointMismatch(missing=names, unexpected=[], mismatched=[])))
    assert view.total == 2000 and view.is_cut
    assert 100 < len(view.mismatches) < 2000
    assert all(re.fullmatch(r"tower\.layer\.\d+\.weight", each.name) for each in view.mismatches)


@pytest.mark.parametrize(
    ("name", "found", "expected"),
    [
        ("a", "float32 [2]", "float32 [3]"),
        ("odd: name (x), model (y)", "int8 []", "bool [1, 2]"),
        (sample.NASTY, "float32 [2]", "float32 [3]"),
    ],
)
def test_names_of_any_kind_are_told_from_sizes(name: str, found: str, expected: str) -> None:
    entry = f"{name}: checkpoint ({found}), model ({expected})"
    error = CheckpointMismatch(missing=[], unexpected=[], mismatched=[entry])
    (mismatch,) = FailureView.of(Failure.of(error)).mismatches
    assert mismatch == Mismatch(name=name, expected=expected, found=found)


def test_names_of_tensors_are_no_markup(client: TestClient, store: MemoryJobStore) -> None:
    error = CheckpointMismatch(missing=[sample.NASTY, "\u202egnp.exe"], unexpected=[], mismatched=[])
    tower = sample.broken(TowerName.MODEL).model_copy(update={"failure": Failure.of(error)})
    text = page_of(client, store, sample.job(JobState.FAILED, tower))
    assert sample.NASTY not in text and "\u202e" not in text
    assert "&lt;script&gt;" in text


def test_a_failure_is_on_its_tower_and_the_top_names_the_tower(
    client: TestClient, store: MemoryJobStore
) -> None:
    text = page_of(client, store, sample.partial())
    assert "dims_conflict" in card_of(text, "item") and "dims_conflict" not in card_of(text, "user")
    assert "<strong>1 of 2 towers failed:</strong>" in text and '<a href="#tower-item">item</a>' in text
    assert text.count("the item tower&#39;s embedding has 8 rows") == 1


def test_a_failure_leads_to_the_log_of_its_stage(client: TestClient, store: MemoryJobStore) -> None:
    job = sample.partial()
    link = f'href="/jobs/{job.id}/log?tower=item&amp;stage=trace">Log of the stage that failed'
    assert link in card_of(page_of(client, store, job), "item")


def test_a_failure_of_the_whole_attempt_is_said_once_above_the_towers(
    client: TestClient, store: MemoryJobStore
) -> None:
    towers = [
        sample.broken(name, "the machine is gone", "attempt_failed")
        for name in (TowerName.USER, TowerName.ITEM)
    ]
    job = sample.job(JobState.FAILED, *towers).model_copy(update={"failure": towers[0].failure})
    text = page_of(client, store, job)
    assert text.count("the machine is gone") == 1 and text.index("the machine is gone") < text.index("Towers")


def test_the_line_of_the_config_is_a_link_away(client: TestClient, store: MemoryJobStore) -> None:
    job = sample.partial()
    text = page_of(client, store, job)
    assert f'<a href="/jobs/{job.id}/config#line-41"><code>pipeline.config:41</code></a>' in text
    assert 'id="line-41"' in client.get(f"/jobs/{job.id}/config").text


@pytest.mark.parametrize(
    ("where", "line"),
    [
        ("config:12", 12),
        ("config:12:3", 12),
        ("s3://m/pipeline.config:7", 7),
        ("model.py:7", None),
        ("config:x", None),
        ("batch_32", None),
    ],
)
def test_only_places_in_the_config_are_lines_of_it(where: str, line: int | None) -> None:
    assert FailureView.of(Failure(code="c", message="m", where=where)).config_line == line


@pytest.mark.parametrize(
    ("code", "offered"),
    [
        ("tower_died", True),
        ("storage_error", True),
        ("stage_timed_out", True),
        ("checkpoint_mismatch", False),
        ("invalid_rows", False),
        ("verification_failed", False),
        ("internal_error", False),
    ],
)
def test_a_retry_is_offered_only_where_it_may_help(
    client: TestClient, store: MemoryJobStore, code: str, offered: bool
) -> None:
    text = page_of(client, store, sample.partial(code=code))
    assert ("Retry the failed towers" in text) is offered
    assert "Run again with changes" in text  # in any case


def test_what_slipway_itself_tries_again_may_be_retried(client: TestClient, store: MemoryJobStore) -> None:
    job = sample.partial(code="a_code_of_tomorrow")
    failed = job.towers[1]
    assert failed.failure is not None
    again = failed.failure.model_copy(update={"retryable": True})
    towers = (job.towers[0], failed.model_copy(update={"failure": again}))
    assert "Retry the failed towers" in page_of(client, store, job.model_copy(update={"towers": towers}))


def test_the_documents_agree_on_what_an_operator_can_repair() -> None:
    """The causes that are taken for removable are those on which docs/operations.md lets the operator act."""
    text = (ROOT / "docs" / "operations.md").read_text()
    actors = {code: who for codes, who in ROW.findall(text) for code in re.findall(r"`(\w+)`", codes)}
    acts = {code for code in AFTER_REPAIR if "operator" in actors[code]}
    assert AFTER_REPAIR - acts == {"host_missing"}  # the caller starts the missing hosts


def test_what_was_cancelled_is_not_red(client: TestClient, store: MemoryJobStore) -> None:
    running = sample.at_work(TowerName.USER, Stage.COMPILE, 0.5, "")
    job = sample.job(JobState.CANCELLED, running.cancel())
    failure = sample.broken(TowerName.USER).failure
    text = page_of(client, store, job.model_copy(update={"failure": failure}))
    assert 'class="stage stopped"' in text and 'class="stage failed"' not in text
    assert 'class="failure quiet-failure"' in text
