"""The pictures of pages that documents show; `make pictures` takes them."""

from pathlib import Path

import pytest

from jobs.model import Job
from tests.architecture.test_links import MAX_PICTURE
from tests.chromium import OpenPage
from tests.dashboard.test_looks import address, jobs

__all__ = ["jobs"]

# Picture -> the page of test_looks.py, what is there once it is drawn, and the height that is shown.
PICTURES = {
    "dashboard": ("jobs", "#jobs", 660),
    "job-done": ("succeeded", "#files table", 596),
    "job-failed": ("mismatched", "#tower-user, #tower-model", 760),
}


@pytest.mark.browser
@pytest.mark.parametrize("name", PICTURES)
def test_it_is_small_enough_to_be_kept(
    url: str, jobs: dict[str, Job], open_page: OpenPage, pictures: Path, name: str
) -> None:
    shown, drawn, height = PICTURES[name]
    file = pictures / f"{name}.png"
    with open_page(address(url, jobs, shown)) as page:
        page.locator(drawn).first.wait_for()
        page.set_viewport_size({"width": 1280, "height": height})
        page.screenshot(path=file)
    assert file.stat().st_size <= MAX_PICTURE
