"""The verdict of the release gate on the pages of jobs."""

import logging

import pytest
from starlette.testclient import TestClient

from exporter.reports.release_report import Finding
from exporter.stages import Stage
from jobs.model import Job
from jobs.progress import fold_events
from jobs.stores.memory_store import MemoryJobStore
from service.dashboard.timeline import BarState, TimedTower, longest_of, timeline
from service.dependencies import Backend
from tests.dashboard.sample import NASTY
from tests.jobs.factories import (
    AS_GOOD,
    CONFIG_TEXT,
    WORSE,
    make_event,
    make_gated_job,
    make_job,
    make_report,
)


def page_of(client: TestClient, store: MemoryJobStore, job: Job) -> str:
    store.add(job, CONFIG_TEXT)
    return " ".join(client.get(f"/jobs/{job.id}").text.split())


def test_a_release_that_is_worse_is_shown_with_its_figures(client: TestClient, store: MemoryJobStore) -> None:
    text = page_of(client, store, make_gated_job(make_report(AS_GOOD, WORSE)))
    assert '<span class="pill failed">not blessed</span>' in text
    assert "promoting it is refused without <code>force</code>" in text
    cells = [">0.61<", ">0.7<", ">0.69<", ">900<", '<strong class="worse">failed</strong>']
    places = [text.index(cell) for cell in cells]
    assert places == sorted(places)  # one row, in the order of the columns
    assert text.index("auc") < text.index(">ne<")  # what stands against it comes first
    assert "Release not blessed." in text  # for screen readers
    assert 'href="/jobs/0"' in text and "/diff" in text


def test_a_blessed_release_is_shown_so_and_the_list_stays_quiet(
    client: TestClient, store: MemoryJobStore
) -> None:
    text = page_of(client, store, make_gated_job(make_report(AS_GOOD)))
    assert '<span class="pill succeeded">blessed</span>' in text and "it may be promoted" in text
    assert "blessed" not in client.get("/").text


def test_the_list_marks_releases_that_are_not_blessed(client: TestClient, store: MemoryJobStore) -> None:
    store.add(make_gated_job(make_report(failure="the rows have no labels")), CONFIG_TEXT)
    assert "not blessed" in client.get("/").text


def test_a_job_without_a_gate_says_nothing_of_blessing(client: TestClient, store: MemoryJobStore) -> None:
    text = page_of(client, store, make_job())
    assert "lessed" not in text and "<h2>Release</h2>" not in text


def test_what_an_attempt_reports_is_no_markup(client: TestClient, store: MemoryJobStore) -> None:
    nasty = WORSE.model_copy(update={"subject": NASTY, "measure": NASTY, "detail": NASTY})
    assert isinstance(nasty, Finding)
    report = make_report(nasty).model_copy(update={"baseline": NASTY, "failure": NASTY})
    assert NASTY not in page_of(client, store, make_gated_job(report))


def test_judging_is_a_stage_of_the_timeline_once_it_has_begun() -> None:
    user, item = fold_events(make_job(), [make_event("user", Stage.RELEASE)]).towers
    timed = [TimedTower.of(tower, None) for tower in (user, item)]
    bars = timeline(timed[0], longest_of(timed))
    assert (bars[-1].stage, bars[-1].state) == (Stage.RELEASE, BarState.RUNNING)
    assert Stage.RELEASE not in item.stages


def test_what_the_gate_objects_to_is_promoted_only_by_force(
    client: TestClient, store: MemoryJobStore, backend: Backend, caplog: pytest.LogCaptureFixture
) -> None:
    job = make_gated_job(make_report(AS_GOOD, WORSE))
    assert 'name="force" value="yes" required' in page_of(client, store, job)
    for fields in ({}, {"force": ""}, {"force": "true"}):
        answer = client.post(f"/jobs/{job.id}/promote", data=fields)
        assert (answer.status_code, "release_not_blessed" in answer.text) == (409, True)
        assert "auc of ctr failed (0.61, baseline 0.7, allowed 0.69)" in answer.text
        assert backend.pointers.get_promoted("ranker") is None
    with caplog.at_level(logging.INFO):
        answer = client.post(f"/jobs/{job.id}/promote", data={"force": "yes"}, follow_redirects=False)
    assert answer.status_code == 303
    assert backend.pointers.get_promoted("ranker") is not None
    actions = [record.msg["action"] for record in caplog.records if isinstance(record.msg, dict)]
    assert actions == ["promote by force"]  # as the API's audit log has it
