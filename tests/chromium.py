"""A real Chromium for the tests that look at pages, and the pictures they keep."""

import os
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

_PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
# A browser that calls nobody on its own.
_FLAGS = (
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)

_WANTED = re.compile("ERR_FAILED|status of 4(01|22)")  # a service made to be away, a key asked for, a mistake

OpenPage = Callable[..., AbstractContextManager["Page"]]
Screenshot = Callable[["Page", str], None]


@pytest.fixture(scope="session")
def browser() -> Iterator["Browser"]:
    """One Chromium for all tests."""
    from playwright import sync_api as api  # heavy, and for the browser's tests only

    program = next(filter(None, map(shutil.which, _PROGRAMS)), None)
    if program is None:
        pytest.fail("no Chromium is installed; on Debian: apt install chromium")  # asked for, so not skipped
    flags = [*_FLAGS, *(["--no-sandbox"] if os.geteuid() == 0 else [])]
    with api.sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=program, args=flags)
        yield chromium
        chromium.close()


@pytest.fixture
def open_page(browser: "Browser") -> OpenPage:
    """A page in a window of its own, in which nothing may go wrong or be asked of another host."""

    @contextmanager
    def open_at(address: str, *, scripts: bool = True, expects: int | None = None) -> Iterator["Page"]:
        context = browser.new_context(
            color_scheme="light",
            viewport={"width": 1280, "height": 850},
            java_script_enabled=scripts,
            reduced_motion="reduce",
        )
        context.set_default_timeout(15_000)
        page = context.new_page()
        asked: list[str] = []
        complaints: list[str] = []
        page.on("request", lambda request: asked.append(request.url))
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.goto(address)
        yield page
        context.close()
        origin = "/".join(address.split("/")[:3])
        assert [each for each in asked if not each.startswith(origin)] == []
        expected = f"status of {expects}"  # an error that the test is about
        assert [each for each in complaints if not _WANTED.search(each) and expected not in each] == []

    return open_at


@pytest.fixture
def pictures(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder for pictures: that of --pictures, or one among the run's files."""
    asked: Path | None = request.config.getoption("--pictures")
    folder = asked or tmp_path_factory.getbasetemp() / "pictures"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@pytest.fixture
def screenshot(pictures: Path) -> Screenshot:
    """Keep a picture of a page for people to look at."""

    def take(page: "Page", name: str) -> None:
        page.screenshot(path=pictures / f"{name}.png", full_page=True)

    return take
