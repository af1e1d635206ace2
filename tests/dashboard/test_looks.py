"""How the pages look: by day and by night, on a phone, and without scripts."""

import re
from datetime import timedelta
from itertools import product
from pathlib import Path

import pytest

from exporter.spec import Device, TowerName
from exporter.stages import Stage
from jobs.memory_store import MemoryJobStore
from jobs.model import Job, JobState
from jobs.roster import WorkerNotice
from service.dashboard.render import STATIC
from service.dependencies import Backend
from tests.dashboard import sample
from tests.dashboard.conftest import OpenPage, Scheme, Screenshot
from tests.jobs.factories import NOW

PAGES = ("jobs", "running", "succeeded", "failed", "partial", "workers", "missing")
PHONE = 390


@pytest.fixture
def jobs(store: MemoryJobStore, backend: Backend, tmp_path: Path) -> dict[str, Job]:
    """One job of every kind, and a worker."""
    user = sample.at_work(TowerName.USER, Stage.COMPILE, 0.62, "38 of 61 files compiled")
    item = sample.at_work(TowerName.ITEM, Stage.VERIFY, 0.3, "batch_32: package against eager")
    jobs = {
        "failed": sample.failed("a size was specialised to 37, and the plan lets it vary from 0 to 9216"),
        "partial": sample.partial(),
        "cancelled": sample.job(JobState.CANCELLED, minutes=40),
        "succeeded": sample.published(tmp_path),
        "running": sample.job(JobState.RUNNING, user, item, minutes=1.2),
        "queued": sample.job(JobState.QUEUED, checkpoint="dssm_v2/model.ckpt-99000", minutes=0.4),
    }
    for job in jobs.values():
        store.add(job)
    notice = WorkerNotice(
        id="gpu-3-4711",
        host="gpu-3",
        pid=4711,
        device=Device.CUDA,
        versions={"torch": "2.13.0", "torchrec": "1.8.0"},
        started_at=NOW,
        jobs=(jobs["running"].id,),
    )
    backend.roster.announce(notice, timedelta(minutes=1))
    return jobs


def address(url: str, jobs: dict[str, Job], page: str) -> str:
    paths = {"jobs": "", "workers": "workers", "missing": "jobs/none"}
    return f"{url}/{paths.get(page) if page in paths else f'jobs/{jobs[page].id}'}"


@pytest.mark.browser
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", PAGES[:-1])
def test_a_page_by_day_and_by_night(
    url: str, jobs: dict[str, Job], open_page: OpenPage, screenshot: Screenshot, name: str, scheme: Scheme
) -> None:
    with open_page(address(url, jobs, name), scheme=scheme) as page:
        page.wait_for_load_state("networkidle")
        (red, *_) = re.findall(r"\d+", page.evaluate("getComputedStyle(document.body).backgroundColor"))
        assert int(red) > 200 if scheme == "light" else int(red) < 50
        screenshot(page, f"{name}-{scheme}")


@pytest.mark.browser
@pytest.mark.parametrize("name", PAGES[:-1])
def test_a_page_fits_a_phone(
    url: str, jobs: dict[str, Job], open_page: OpenPage, screenshot: Screenshot, name: str
) -> None:
    with open_page(address(url, jobs, name), width=PHONE) as page:
        page.wait_for_load_state("networkidle")
        assert page.evaluate("document.documentElement.scrollWidth") == PHONE
        screenshot(page, f"{name}-phone")


@pytest.mark.browser
def test_the_parts_of_a_job_page_come_by_themselves(
    url: str, jobs: dict[str, Job], open_page: OpenPage
) -> None:
    with open_page(address(url, jobs, "succeeded")) as page:
        page.locator("#report .plot").first.wait_for()
        page.locator("#plan table").first.wait_for()
        assert page.locator("h1").count() == 1


@pytest.mark.browser
@pytest.mark.parametrize("name", PAGES[:-1])
def test_a_page_is_of_use_without_scripts(
    url: str, jobs: dict[str, Job], open_page: OpenPage, name: str
) -> None:
    with open_page(address(url, jobs, name), scripts=False) as page:
        assert page.locator("h1").is_visible()
        if name == "succeeded":
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
    """What is written on what."""
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
