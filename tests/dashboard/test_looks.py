"""The looks of the pages: light and dark, on a phone, and without scripts."""

import re
from datetime import timedelta
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from fastapi import FastAPI

from exporter.spec import Device, TowerName
from exporter.stages import Stage
from jobs.diagnostics.logs import LogPart
from jobs.fleet.roster import WorkerNotice
from jobs.model import Job, JobState
from jobs.stores.memory_store import MemoryJobStore
from service.dashboard.render import STATIC
from service.dependencies import Backend
from tests.chromium import OpenPage, Screenshot
from tests.dashboard import sample
from tests.dashboard.conftest import KEYS
from tests.jobs.factories import NOW
from tests.service.conftest import serving

if TYPE_CHECKING:
    from playwright.sync_api import Page

PAGES = ("jobs", "running", "succeeded", "failed", "mismatched", "workers")
PHONE = 390


@pytest.fixture
def jobs(store: MemoryJobStore, backend: Backend, tmp_path: Path) -> dict[str, Job]:
    """One job of every kind, and a worker."""
    user = sample.at_work(TowerName.USER, Stage.COMPILE, 0.62, "38 of 61 files compiled")
    item = sample.at_work(TowerName.ITEM, Stage.VERIFY, 0.3, "batch_32: package against eager")
    jobs = {
        "failed": sample.failed("a size was specialised to 37, and the plan lets it vary from 0 to 9216"),
        "partial": sample.partial(code="tower_died"),
        "mismatched": sample.mismatched(),
        "cancelled": sample.job(JobState.CANCELLED, minutes=40),
        "succeeded": sample.published(tmp_path),
        "running": sample.job(JobState.RUNNING, user, item, minutes=1.2),
        "queued": sample.job(JobState.QUEUED, checkpoint="dssm_v2/model.ckpt-99000", minutes=0.4),
    }
    for job in jobs.values():
        store.add(job, sample.CONFIG_TEXT)
    notice = WorkerNotice(
        id="gpu-3-4711",
        host="gpu-3",
        pid=4711,
        device=Device.CUDA,
        versions={"torch": "2.13.0", "torchrec": "1.8.0"},
        started_at=NOW,
        jobs=(jobs["running"].id,),
    )
    lines = ("AUTOTUNE mm(512x64, 64x24)", "compiling 38 of 61", "warning: unused variable")
    backend.logs.append(
        jobs["running"].id,
        [
            LogPart(lines=("rank 0 of 2 begins",)),
            LogPart(tower=TowerName.USER, stage=Stage.TRACE, lines=("tracing user",)),
            LogPart(tower=TowerName.USER, stage=Stage.COMPILE, lines=lines),
        ],
    )
    backend.roster.announce(notice, timedelta(minutes=1))
    return jobs


def address(url: str, jobs: dict[str, Job], page: str) -> str:
    paths = {"jobs": "", "workers": "workers"}
    return f"{url}/{paths[page] if page in paths else f'jobs/{jobs[page].id}'}"


@pytest.mark.browser
@pytest.mark.parametrize("name", PAGES)
def test_a_page_by_day_by_night_and_on_a_phone(
    url: str, jobs: dict[str, Job], open_page: OpenPage, screenshot: Screenshot, name: str
) -> None:
    with open_page(address(url, jobs, name)) as page:
        page.locator("#tower-user, #tower-model, #jobs, #worker-1").first.wait_for()
        if name == "succeeded":
            page.locator("#files table").first.wait_for()
        assert brightness(page) > 200
        screenshot(page, f"{name}-light")
        page.emulate_media(color_scheme="dark")
        assert brightness(page) < 50
        screenshot(page, f"{name}-dark")
        page.set_viewport_size({"width": PHONE, "height": 800})
        assert page.evaluate("document.documentElement.scrollWidth") == PHONE
        page.emulate_media(color_scheme="light")
        screenshot(page, f"{name}-phone")


def brightness(page: "Page") -> int:
    """Return the brightness of the page's background, 0 to 255."""
    return int(re.findall(r"\d+", page.evaluate("getComputedStyle(document.body).backgroundColor"))[0])


@pytest.mark.browser
def test_the_parts_of_a_job_page_come_by_themselves(
    url: str, jobs: dict[str, Job], open_page: OpenPage
) -> None:
    with open_page(address(url, jobs, "succeeded")) as page:
        page.locator("#files table").wait_for()
        assert page.locator("#report .plot, #plan table").count() == 0  # until somebody opens them
        for title, shown in (("Verification", "#report .plot"), ("Dim plan", "#plan table")):
            page.get_by_role("heading", name=title).click()
            page.locator(shown).first.wait_for()
        assert page.locator("h1").count() == 1


@pytest.mark.browser
def test_a_click_runs_the_failed_towers_again(url: str, jobs: dict[str, Job], open_page: OpenPage) -> None:
    with open_page(address(url, jobs, "partial")) as page:
        page.get_by_role("button", name="Retry the failed towers").click()
        page.locator(".bar .pill.queued").wait_for()
        assert jobs["partial"].id not in page.url


@pytest.mark.browser
def test_a_key_is_asked_for_and_kept(
    guarded: FastAPI, jobs: dict[str, Job], open_page: OpenPage, screenshot: Screenshot
) -> None:
    with serving(guarded) as url, open_page(address(url, jobs, "queued")) as page:
        screenshot(page, "sign-in")
        page.keyboard.type(KEYS["trainer"])  # the field has the focus
        page.keyboard.press("Enter")
        page.locator(".bar .pill.queued").wait_for()
        page.get_by_role("button", name="Sign out").click()
        page.locator("#sign-in").wait_for()


@pytest.mark.browser
@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_of_use_without_scripts(
    url: str, jobs: dict[str, Job], open_page: OpenPage, name: str
) -> None:
    with open_page(address(url, jobs, name), scripts=False) as page:
        assert page.locator("h1").is_visible()
        if name == "succeeded":
            page.get_by_role("heading", name="Verification").click()
            page.get_by_role("link", name="Show the verification report").click()
            assert page.locator(".plot").first.is_visible()


def _palettes() -> dict[str, dict[str, str]]:
    """The colours of the style sheet, by day and by night."""
    text = (STATIC / "style.css").read_text()
    day, night = re.findall(r":root \{(.*?)\}", text, re.DOTALL)
    return {
        "light": dict(re.findall(r"--([\w-]+): (#\w+);", day)),
        "dark": dict(re.findall(r"--([\w-]+): (#\w+);", night)),
    }


def _luminance(colour: str) -> float:
    digits = colour[1:] if len(colour) == 7 else "".join(2 * digit for digit in colour[1:])
    channels = (int(digits[at : at + 2], 16) / 255 for at in (0, 2, 4))
    linear = [value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4 for value in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def _pairs() -> list[tuple[str, str]]:
    """Pairs of the colours of text and background that appear together."""
    words = ("text", "quiet", "link", "blue", "green", "red", "amber", "grey")
    washes = [(name, f"{name}-wash") for name in ("blue", "green", "red", "amber", "grey")]
    return [*product(words, ("page", "card")), ("text", "track"), ("page", "text"), *washes]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize(("front", "back"), _pairs())
def test_words_stand_out_from_what_they_are_written_on(scheme: str, front: str, back: str) -> None:
    """WCAG 2.2 AA asks for a contrast of 4.5."""
    palette = _palettes()[scheme]
    dark, light = sorted([_luminance(palette[front]), _luminance(palette[back])])
    assert (light + 0.05) / (dark + 0.05) >= 4.5
