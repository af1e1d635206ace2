"""A day of Slipway: a training event, a live page, callbacks, the same request again, a cancel, a retry.

Redis, API and worker are the real programs. Fake ranks do what the job's output is called.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from standardwebhooks import Webhook

from launcher.up import Stack, running_stack
from slipway.client import Client, JobState, TowerName
from tests.architecture.tree import ROOT
from tests.chromium import OpenPage, Screenshot
from tests.jobs.hooks.factories import SECRET
from tests.launcher.conftest import fake_ranks
from tests.service.hooks.events import rule, structured, training_event
from tests.service.hooks.receiver import Receiver, running_receiver
from tests.service.requests import export_request

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = pytest.mark.slow

SETTINGS = {
    "SLIPWAY_WEBHOOK_SECRETS": SECRET,
    "SLIPWAY_CALLBACK_SECRETS": SECRET,
    "SLIPWAY_CALLBACK_NETWORKS": "127.0.0.0/8",
    "SLIPWAY_CALLBACK_PAUSES": "0.1,0.1,0.1",
    "SLIPWAY_CALLBACK_POLL": "0.05",
}
PATIENCE_MS = 20_000
TYPES = ("export.started", "tower.finished", "tower.finished", "export.finished")


@pytest.fixture(scope="module")
def story_stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    folder = tmp_path_factory.mktemp("story")
    with running_stack(folder, environment={**fake_ranks("as-asked", folder), **SETTINGS}) as stack:
        yield stack


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    """Fails twice before it takes anything."""
    with running_receiver() as receiver:
        receiver.answers = [500, 500, 204]
        yield receiver


def request_for(behaviour: str, folder: Path, **changes: object) -> dict[str, object]:
    return export_request(output_uri=str(folder / behaviour), **changes)


def assert_told_once(receiver: Receiver, url: str, job_id: str) -> None:
    """Every event was accepted once, and the first to come after two failures; all are signed."""
    received = receiver.wait_for(len(TYPES) + 2)
    told = [Webhook(SECRET).verify(each.body, each.headers) for each in received[2:]]
    assert sorted(event["type"] for event in told) == sorted(TYPES)
    assert {event["subject"] for event in told} == {job_id}
    listed = httpx.get(f"{url}/deliveries", params={"job": job_id}).json()["deliveries"]
    assert {each["state"] for each in listed} == {"delivered"}
    assert sorted(each["attempts"] for each in listed) == [1] * (len(TYPES) - 1) + [3]


def test_the_story_by_curl(story_stack: Stack, receiver: Receiver, tmp_path: Path) -> None:
    bodies = []
    for behaviour in ("publish", "hang", "fail-item"):
        url = receiver.url if behaviour == "publish" else None
        bodies.append(tmp_path / f"{behaviour}.json")
        bodies[-1].write_text(json.dumps(request_for(behaviour, tmp_path, callback_url=url)))
    path = f"{Path(sys.executable).parent}:{os.defpath}"  # where python3 is
    told = subprocess.run(
        [ROOT / "examples" / "curl" / "story.sh", *bodies, story_stack.url],
        env={"SLIPWAY_WEBHOOK_SECRET": SECRET, "PATH": path},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert told.returncode == 0, told.stderr
    lines = dict(line.split(": ", 1) for line in told.stdout.splitlines())
    assert lines["the long export is"] == "cancelled"
    assert lines["the retry ran"] == "item"
    assert_told_once(receiver, story_stack.url, lines["its one job"])


@pytest.mark.browser
def test_the_story_in_chromium(
    story_stack: Stack, receiver: Receiver, open_page: OpenPage, screenshot: Screenshot, tmp_path: Path
) -> None:
    url = story_stack.url
    template = request_for("publish", tmp_path, callback_url=receiver.url)
    httpx.put(f"{url}/triggers/story", json=rule(**template)).raise_for_status()
    with open_page(url) as page:
        job_id = an_event_comes_twice(url)
        its_page_shows_it_live(page, job_id, screenshot)
        assert_told_once(receiver, url, job_id)
        the_same_request_answers_at_once(url, template, job_id)
        a_cancel_frees_the_worker(page, url, request_for("hang", tmp_path))
        a_retry_runs_what_failed(page, url, request_for("fail-item", tmp_path))
        screenshot(page, "story-retried")


def an_event_comes_twice(url: str) -> str:
    """Returns the one job it starts."""
    body, headers = structured(training_event("run-in-chromium"))
    first, again = (httpx.post(f"{url}/webhooks/training", content=body, headers=headers) for _ in range(2))
    assert (first.status_code, again.status_code) == (202, 202)
    assert (first.json()["duplicate"], again.json()["duplicate"]) == (False, True)
    [start] = first.json()["starts"]
    assert again.json()["starts"] == [start]
    return str(start["job"])


def its_page_shows_it_live(page: "Page", job_id: str, screenshot: Screenshot) -> None:
    from playwright.sync_api import expect  # heavy, and for the browser's tests only

    page.locator(f"#job-{job_id} a").first.click()
    page.evaluate("window.stayed = true")
    expect(page.locator(".stage.running")).to_have_count(1)
    screenshot(page, "story-running")
    expect(page.locator(".bar .pill")).to_have_text("succeeded", timeout=PATIENCE_MS)
    expect(page.locator("#tower-item .stage.done")).to_have_count(3)  # with the start-up
    assert page.evaluate("window.stayed")


def the_same_request_answers_at_once(url: str, template: dict[str, object], job_id: str) -> None:
    answer = httpx.post(f"{url}/exports", json=template)
    assert (answer.status_code, answer.json()["id"]) == (200, job_id)
    forced = httpx.post(f"{url}/exports", json={**template, "force": True, "callback_url": None})
    assert (forced.status_code, forced.json()["id"] == job_id) == (202, False)
    Client(url).cancel(forced.json()["id"])


def a_cancel_frees_the_worker(page: "Page", url: str, request: dict[str, object]) -> None:
    from playwright.sync_api import expect  # heavy, and for the browser's tests only

    client = Client(url)
    job = client.submit(request)
    page.goto(f"{url}/jobs/{job.id}")
    expect(page.locator("#tower-item .stage.done")).to_have_count(3)  # with the start-up
    page.locator("#cancel summary").click()
    asked = time.monotonic()
    page.locator("#cancel button").click()
    wait_until(lambda: client.get(job.id).state is JobState.CANCELLED)
    wait_until(lambda: [worker.jobs for worker in client.ready().alive or ()] == [()])
    assert time.monotonic() - asked < 5
    expect(page.locator(".bar .pill")).to_have_text("cancelled")
    expect(page.locator("#tower-user .pill")).to_have_text("cancelled")


def a_retry_runs_what_failed(page: "Page", url: str, request: dict[str, object]) -> None:
    from playwright.sync_api import expect  # heavy, and for the browser's tests only

    job = Client(url).submit(request)
    page.goto(f"{url}/jobs/{job.id}")
    expect(page.locator(".bar .pill")).to_have_text("partially succeeded", timeout=PATIENCE_MS)
    bundle = page.get_by_role("link", name="Failure bundle").get_attribute("href")
    assert httpx.get(f"{url}{bundle}").headers["content-type"] == "application/zip"
    page.get_by_role("button", name="Retry the failed towers").click()
    expect(page.locator(".bar .pill")).to_have_text("succeeded", timeout=PATIENCE_MS)
    retried = Client(url).get(page.url.rpartition("/")[2])
    assert (retried.retry_of, [tower.name for tower in retried.towers]) == (job.id, [TowerName.ITEM])


def wait_until(reached: Callable[[], Any]) -> None:
    deadline = time.monotonic() + PATIENCE_MS / 1000
    while not reached():
        assert time.monotonic() < deadline
        time.sleep(0.05)
