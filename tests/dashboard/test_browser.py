"""The pages in a real Chromium, on a whole Slipway whose attempts are run by fake ranks."""

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from exporter.spec import ExportSpec
from launcher.up import Stack, running_stack
from slipway.client import Client
from tests.chromium import OpenPage, Screenshot
from tests.launcher.conftest import fake_ranks
from tests.service.requests import export_request

if TYPE_CHECKING:
    from playwright.sync_api import Page

sync_api = pytest.importorskip("playwright.sync_api", reason="Playwright for Python is not installed")
expect = sync_api.expect
expect.set_options(timeout=20_000)

pytestmark = [pytest.mark.browser, pytest.mark.slow]


def submit(stack: Stack, **changes: str) -> str:
    spec = ExportSpec.model_validate(export_request(**changes))
    return str(Client(stack.url).submit(spec).id)


@pytest.fixture(scope="module")
def hanging(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """A Slipway whose attempts do not end; a test leaves no job running."""
    folder = tmp_path_factory.mktemp("hanging")
    with running_stack(folder, environment=fake_ranks("hang", folder)) as stack:
        yield stack


def test_a_new_job_appears_in_the_list_and_is_followed_to_its_end(
    stack: Stack, open_page: OpenPage, screenshot: Screenshot
) -> None:
    with open_page(stack.url) as page:
        page.evaluate("window.stayed = true")
        row = page.locator(f"#job-{submit(stack)}")
        expect(row).to_be_visible()
        expect(row.locator(".pill")).to_have_text("succeeded")
        expect(row.locator(".job-towers")).to_contain_text("item")
        assert page.evaluate("window.stayed")
        screenshot(page, "live-list")


def test_a_job_page_follows_the_job_and_says_so_aloud(stack: Stack, open_page: OpenPage) -> None:
    with open_page(f"{stack.url}/jobs/{submit(stack)}") as page:
        expect(page.locator(".bar .pill")).to_have_text("succeeded")
        expect(page.locator("main > [role=status]")).to_have_text(re.compile("Export succeeded. user tower"))
        expect(page).to_have_title(re.compile("^succeeded: "))
        expect(page.locator("#tower-user .stage.done")).to_have_count(3)  # with the start-up
        for title in ("Log", "Dim plan", "Verification"):
            fold = page.locator("details.fold", has=page.get_by_role("heading", name=title, exact=True))
            if fold.get_attribute("open") is None:
                fold.locator("summary").first.click()
        expect(page.locator("#log")).to_contain_text("at work on compile of user")
        expect(page.locator("#plan")).to_contain_text("seq_uih_seq")
        expect(page.locator("#report")).to_contain_text("is not an artifact")  # fake ranks publish nothing


def test_a_job_page_is_told_of_changes(hanging: Stack, open_page: OpenPage) -> None:
    job_id = submit(hanging)
    with open_page(hanging.url) as page:
        with page.expect_request(f"**/exports/{job_id}/events"):
            page.goto(f"{hanging.url}/jobs/{job_id}")
        expect(page.locator("#tower-user .stage.done")).to_have_count(3)  # with the start-up
        page.wait_for_timeout(2500)  # from here on it looks by itself every fifteen seconds only
        Client(hanging.url).cancel(job_id)
        expect(page.locator(".bar .pill")).to_have_text("cancelled", timeout=9_000)


def test_a_search_narrows_the_list_while_it_is_typed(stack: Stack, open_page: OpenPage) -> None:
    job_id = submit(stack)
    other = submit(stack)
    with open_page(stack.url) as page:
        page.keyboard.press("/")
        page.keyboard.type(job_id[-8:])
        expect(page.locator(f"#job-{other}")).to_have_count(0)
        expect(page.locator(f"#job-{job_id}")).to_be_visible()
        expect(page.locator("#q")).to_be_focused()
        assert page.url.endswith(f"?q={job_id[-8:]}")
        page.locator("#q").fill("")
        expect(page.locator(f"#job-{other}")).to_be_visible()


def test_a_state_is_chosen_from_the_list_of_states(stack: Stack, open_page: OpenPage) -> None:
    job_id = submit(stack)
    with open_page(stack.url) as page:
        page.get_by_role("link", name="cancelled").click()
        expect(page.locator(f"#job-{job_id}")).to_have_count(0)
        expect(page.get_by_role("link", name="cancelled")).to_have_attribute("aria-current", "true")


def test_a_running_job_is_cancelled_with_the_keyboard_alone(
    hanging: Stack, open_page: OpenPage, screenshot: Screenshot
) -> None:
    job_id = submit(hanging)
    with open_page(hanging.url) as page:
        expect(page.locator(f"#job-{job_id} .pill")).to_have_text("running")
        page.keyboard.press("Tab")
        expect(page.locator(".skip")).to_be_focused()
        press_until(page, f"#job-{job_id} a")
        page.keyboard.press("Enter")
        expect(page.locator("#tower-user .stage.done")).to_have_count(3)  # with the start-up
        screenshot(page, "live-running")
        press_until(page, "#cancel summary")
        page.keyboard.press("Enter")
        page.wait_for_timeout(2500)  # a look or two later it is still open, and has the focus
        expect(page.locator("#cancel summary")).to_be_focused()
        press_until(page, "#cancel button")
        page.keyboard.press("Enter")
        expect(page.locator(".bar .pill")).to_have_text("cancelled")
        expect(page.locator("#cancel")).to_have_count(0)


def press_until(page: "Page", selector: str) -> None:
    """Move the focus with Tab alone, and see it on the way."""
    for _ in range(40):
        page.keyboard.press("Tab")
        if page.evaluate("selector => document.activeElement.matches(selector)", selector):
            assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
            return
    raise AssertionError(f"Tab does not lead to {selector}")


def test_workers_and_queue_are_live(hanging: Stack, open_page: OpenPage, screenshot: Screenshot) -> None:
    with open_page(f"{hanging.url}/workers") as page:
        expect(page.locator(".totals")).to_contain_text("1 worker alive")
        first, second = submit(hanging), submit(hanging)
        expect(page.locator(f"#running-{first}")).to_be_visible()
        expect(page.locator(f"#queued-{second}")).to_be_visible()
        expect(page.get_by_text("busy")).to_be_visible()
        screenshot(page, "live-workers")
        for job_id in (second, first):
            Client(hanging.url).cancel(job_id)
        expect(page.get_by_text("idle")).to_be_visible()


def test_a_service_that_is_away_is_missed_and_found_again(stack: Stack, open_page: OpenPage) -> None:
    with open_page(stack.url) as page:
        page.route("**/*", lambda route: route.abort())
        expect(page.locator("#connection")).to_contain_text("Not connected")
        page.unroute_all()
        expect(page.locator("#connection")).to_be_empty()
        expect(page.locator(f"#job-{submit(stack)}")).to_be_visible()
