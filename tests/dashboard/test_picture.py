"""The picture of the dashboard in README.md, which `make pictures` takes."""

from pathlib import Path

import pytest

from jobs.model import Job
from tests.architecture.test_links import MAX_PICTURE
from tests.chromium import SCREENSHOTS, OpenPage, Screenshot
from tests.dashboard.test_looks import jobs

__all__ = ["jobs"]


@pytest.mark.browser
def test_it_is_small_enough_to_be_kept(
    url: str,
    jobs: dict[str, Job],
    open_page: OpenPage,
    screenshot: Screenshot,
) -> None:
    with open_page(url) as page:
        page.locator(f"#job-{jobs['failed'].id}").wait_for()
        page.set_viewport_size({"width": 1280, "height": 590})
        screenshot(page, "dashboard")
    assert Path(SCREENSHOTS, "dashboard.png").stat().st_size <= MAX_PICTURE
