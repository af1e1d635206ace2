"""The page of a finished job in a real Chromium: what it leads to, by mouse, by keyboard and on a phone."""

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from exporter.spec import TowerName
from exporter.stages import Stage
from jobs.control.releases import MemoryPointers
from jobs.diagnostics.logs import LogPart
from jobs.model import Job, JobState
from jobs.stores.memory_store import MemoryJobStore
from service.dependencies import Backend
from tests.chromium import OpenPage, Screenshot
from tests.dashboard import sample
from tests.dashboard.test_looks import PHONE, brightness
from tests.service.requests import FIXTURES

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = pytest.mark.browser

LINES = tuple(f"03:04:{second:02} compiling {second} of 61" for second in range(60))
PARTS = (
    LogPart(lines=("03:04:00 rank 0 of 2 begins",)),
    LogPart(tower=TowerName.USER, stage=Stage.COMPILE, lines=LINES),
    LogPart(tower=TowerName.ITEM, stage=Stage.COMPILE, lines=("03:04:09 g++ of item",)),
)


@pytest.fixture
def done(store: MemoryJobStore, backend: Backend, tmp_path: Path) -> Job:
    """A release with files and a log."""
    job = sample.published(tmp_path).model_copy(update={"model": "ranker", "config_uri": None})
    store.add(job, sample.CONFIG_TEXT)
    backend.logs.append(job.id, PARTS)
    assert isinstance(backend.pointers, MemoryPointers)
    backend.pointers.released["ranker"] = [job.id]
    return job


def press_until(page: "Page", selector: str) -> None:
    """Move the focus with Tab alone, and see it on the way."""
    for _ in range(60):
        page.keyboard.press("Tab")
        if page.evaluate("selector => document.activeElement.matches(selector)", selector):
            assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
            return
    raise AssertionError(f"Tab does not lead to {selector}")


def test_it_fits_two_screens(url: str, done: Job, open_page: OpenPage, screenshot: Screenshot) -> None:
    with open_page(f"{url}/jobs/{done.id}") as page:
        page.set_viewport_size({"width": 1280, "height": 800})
        page.locator("#files table").wait_for()
        assert page.evaluate("document.documentElement.scrollHeight") <= 2 * 800
        screenshot(page, "done-light")


@pytest.mark.parametrize("path", ["", "/files", "/log", "/config", "/rerun", "/diff"])
def test_its_pages_by_day_by_night_and_on_a_phone(
    url: str, done: Job, open_page: OpenPage, screenshot: Screenshot, path: str
) -> None:
    with open_page(f"{url}/jobs/{done.id}{path}") as page:
        if not path:
            page.locator("#files table").wait_for()
        assert brightness(page) > 200
        page.emulate_media(color_scheme="dark")
        assert brightness(page) < 50
        screenshot(page, f"done{path.replace('/', '-')}-dark")
        page.set_viewport_size({"width": PHONE, "height": 800})
        assert page.evaluate("document.documentElement.scrollWidth") == PHONE
        page.emulate_media(color_scheme="light")
        screenshot(page, f"done{path.replace('/', '-')}-phone")


def test_a_button_copies_the_digest(url: str, done: Job, open_page: OpenPage) -> None:
    with open_page(f"{url}/jobs/{done.id}") as page:
        page.context.grant_permissions(["clipboard-read", "clipboard-write"])
        row = page.locator("#files tr", has_text="item/index/items.faiss")
        row.get_by_role("button", name="Copy the digest of item/index/items.faiss").click()
        row.get_by_text("Copied").wait_for()
        assert page.evaluate("navigator.clipboard.readText()") == "e" * 64
        page.locator("#load-user .languages button").first.click()
        page.locator("#load-user").get_by_text("Copied").wait_for()
        assert "from slipway.loader import load, prove" in page.evaluate("navigator.clipboard.readText()")


def test_a_page_that_may_not_use_the_clipboard_copies_all_the_same(
    url: str, done: Job, open_page: OpenPage
) -> None:
    """A page over plain HTTP from another machine has no `navigator.clipboard`."""
    with open_page(f"{url}/jobs/{done.id}/files") as page:
        page.evaluate("Object.defineProperty(navigator, 'clipboard', { value: undefined })")
        page.get_by_role("button", name="Copy the digest of user/fg.json").click()
        page.get_by_text("Copied").wait_for()
        page.goto(f"{url}/jobs/{done.id}/rerun")
        page.locator("textarea").fill("")
        page.keyboard.press("Control+V")
        assert page.locator("textarea").input_value() == "cd" * 32


def test_without_scripts_digests_are_selected_by_a_click_and_no_button_is_shown(
    url: str, done: Job, open_page: OpenPage
) -> None:
    with open_page(f"{url}/jobs/{done.id}", scripts=False) as page:
        assert page.locator(".copy").count() > 5
        assert page.locator(".copy:visible").count() == 0
        page.get_by_role("link", name="Show the files and their digests").click()
        digest = page.locator(".files .uri").first
        assert digest.evaluate("element => getComputedStyle(element).userSelect") == "all"


def test_a_file_is_downloaded_by_its_link(url: str, done: Job, open_page: OpenPage) -> None:
    file = Path(done.manifest_uri or "").parent / "user" / "fg.json"
    file.parent.mkdir(parents=True)
    file.write_text("{}")
    with open_page(f"{url}/jobs/{done.id}") as page:
        with page.expect_download() as downloaded:
            page.get_by_role("link", name="user/fg.json").click()
        assert downloaded.value.suggested_filename == "user-fg.json"
        assert Path(downloaded.value.path()).read_text() == "{}"


def test_a_stage_leads_to_its_log_by_keyboard(
    url: str, done: Job, open_page: OpenPage, screenshot: Screenshot
) -> None:
    with open_page(f"{url}/jobs/{done.id}") as page:
        press_until(page, "#tower-user .stage-name[href$='stage=compile']")
        page.keyboard.press("Enter")
        part = page.locator("#log-user-compile")
        part.get_by_text("60 lines, took 49 s").wait_for()
        assert page.locator(".log-part").count() == 1
        last = part.locator("pre").evaluate("pre => pre.getBoundingClientRect().bottom")
        tail = part.locator(".tail").evaluate("tail => tail.getBoundingClientRect().bottom")
        assert last <= tail + 1  # the last line is in sight
        page.keyboard.press("/")
        page.keyboard.type("17 OF")
        part.get_by_text("1 of 60 lines").wait_for()
        assert part.locator("pre").text_content() == "03:04:17 compiling 17 of 61"
        assert page.locator("#q").evaluate("field => field === document.activeElement")
        assert page.url.endswith("tower=user&stage=compile&q=17+OF")
        screenshot(page, "log-search")
        with page.expect_download() as downloaded:
            page.get_by_role("link", name="Download").click()
        assert Path(downloaded.value.path()).read_text().splitlines()[1:] == ["03:04:17 compiling 17 of 61"]


def test_a_log_is_followed_while_the_job_runs(
    url: str, store: MemoryJobStore, backend: Backend, open_page: OpenPage
) -> None:
    job = sample.job(JobState.RUNNING, sample.at_work(TowerName.USER, Stage.COMPILE, None, ""))
    store.add(job, sample.CONFIG_TEXT)
    backend.logs.append(job.id, PARTS[1:2])
    with open_page(f"{url}/jobs/{job.id}/log?tower=user&stage=compile") as page:
        page.get_by_text("60 lines").wait_for()
        backend.logs.append(job.id, [PARTS[1].model_copy(update={"lines": ("03:05:00 the latest line",)})])
        page.get_by_text("the latest line").wait_for()
        page.get_by_role("link", name="Stop following").click()
        page.get_by_role("link", name="Follow", exact=True).wait_for()
        backend.logs.append(job.id, [PARTS[1].model_copy(update={"lines": ("03:05:01 one more",)})])
        page.wait_for_timeout(3000)
        assert page.get_by_text("one more").count() == 0


def test_the_release_is_promoted_with_the_keyboard_alone(
    url: str, done: Job, backend: Backend, open_page: OpenPage
) -> None:
    with open_page(f"{url}/jobs/{done.id}") as page:
        press_until(page, "#promote summary")
        page.keyboard.press("Enter")
        press_until(page, "#promote button")
        page.keyboard.press("Enter")
        page.locator(".bar .pill", has_text="promoted").wait_for()
        assert page.locator("#promote").count() == 0
    promoted = backend.pointers.get_promoted("ranker")
    assert promoted is not None and promoted.job_id == done.id


def test_a_request_is_changed_refused_corrected_and_submitted(
    url: str, done: Job, store: MemoryJobStore, open_page: OpenPage, screenshot: Screenshot
) -> None:
    data = FIXTURES / "data"
    sources = {
        "checkpoint_uri": str(FIXTURES / "hstu_match" / "model.ckpt-11"),
        "item_input_uri": str(data / "items.parquet"),
        "sample_input_uri": str(data / "train.parquet"),
    }
    with open_page(f"{url}/jobs/{done.id}") as page:
        page.get_by_role("link", name="Run again with changes").click()
        field = page.get_by_label("The request, as POST /exports takes it")
        request = {**json.loads(field.input_value()), **sources}
        field.fill(json.dumps({**request, "max_batch_size": 1, "batch": 3}, indent=2))
        page.get_by_role("button", name="Submit as a new export").click()
        refusal = page.get_by_role("alert")
        refusal.get_by_text("invalid_request").wait_for()
        assert refusal.locator("tbody tr").count() == 2
        screenshot(page, "rerun-refused")
        assert json.loads(field.input_value())["batch"] == 3  # nothing of the text is lost
        field.fill(json.dumps({**request, "max_batch_size": 64}))
        page.get_by_role("button", name="Submit as a new export").click()
        page.locator(".bar .pill.queued").wait_for()
        assert done.id not in page.url
    new = store.get(store.page(limit=1).jobs[0].id)
    assert (new.spec.max_batch_size, new.model) == (64, "ranker")


def test_a_failed_tower_says_what_differs_and_leads_to_the_line(
    url: str, store: MemoryJobStore, open_page: OpenPage
) -> None:
    for job in (sample.mismatched(), failed := sample.failed("sizes disagree")):
        store.add(job, sample.CONFIG_TEXT)
    with open_page(f"{url}/jobs/{job.id}") as page:
        page.get_by_role("link", name="pipeline.config:41").click()
        line = page.locator("#line-41")
        line.wait_for()
        assert page.url == f"{url}/jobs/{failed.id}/config#line-41"
        plain = page.locator("#line-40").evaluate("line => getComputedStyle(line).backgroundColor")
        assert line.evaluate("line => getComputedStyle(line).backgroundColor") != plain
