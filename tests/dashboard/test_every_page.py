"""Every page in a real Chromium: in three widths, by day and night, by keyboard, by axe-core's rules."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import pytest

from launcher.redis_server import running_redis
from tests.chromium import OpenPage, Screenshot
from tests.dashboard.releases import MODEL
from tests.dashboard.whole import Whole, whole_service

if TYPE_CHECKING:
    from playwright.sync_api import Page

sync_api = pytest.importorskip("playwright.sync_api", reason="Playwright for Python is not installed")
expect = sync_api.expect

pytestmark = pytest.mark.browser

WIDTHS = (390, 820, 1440)
SCHEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")
AXE = Path(__file__).parent / "axe" / "node_modules" / "axe-core" / "axe.min.js"
NAMES = (
    *(
        "jobs",
        "jobs-narrowed",
        "jobs-none",
        "job",
        "job-failed",
        "job-running",
        "report",
        "plan",
        "diff",
        "log",
    ),
    *(
        "workers",
        "models",
        "model",
        "figures",
        "triggers",
        "trigger",
        "subscriptions",
        "deliveries",
        "delivery",
    ),
    *("api", "documentation", "not-found", "job-not-found"),
)
FOCUSABLE = "a[href], button, input:not([type=hidden]), textarea, select, summary, [tabindex='0']"
ALL_FOCUSABLE = f'[...document.querySelectorAll("{FOCUSABLE}")].filter((each) => each.checkVisibility())'


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Whole]:
    folder = tmp_path_factory.mktemp("whole")
    with running_redis(folder) as server, whole_service(server.url, folder) as whole:
        yield whole


def wait_for_parts(page: "Page", name: str) -> None:
    """Wait for what a page fetches on its own."""
    if name == "model":
        page.locator("#figures .plot").first.wait_for()
    if name == "job":
        page.locator("#files table").first.wait_for()


def test_all_pages_are_looked_at(whole: Whole) -> None:
    assert set(NAMES) == set(whole.pages)


@pytest.mark.parametrize("name", NAMES)
def test_a_page_fits_every_width(
    whole: Whole, open_page: OpenPage, screenshot: Screenshot, name: str
) -> None:
    with open_page(whole.address(name), expects=404 if "not-found" in name else None) as page:
        wait_for_parts(page, name)
        for scheme in SCHEMES:
            page.emulate_media(color_scheme=scheme)
            for width in WIDTHS:
                page.set_viewport_size({"width": width, "height": 850})
                assert page.evaluate("document.documentElement.scrollWidth") == width, (scheme, width)
                screenshot(page, f"{name}-{width}" if scheme == "light" else f"{name}-{width}-dark")


@pytest.mark.parametrize("name", NAMES)
def test_axe_finds_nothing_serious(whole: Whole, open_page: OpenPage, name: str) -> None:
    if not AXE.is_file():
        pytest.skip("axe-core is not installed: make install does it where npm is")
    with open_page(whole.address(name), expects=404 if "not-found" in name else None) as page:
        wait_for_parts(page, name)
        page.evaluate("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
        found = []
        for scheme, width in zip(SCHEMES, (1440, 390), strict=True):
            page.emulate_media(color_scheme=scheme)
            page.set_viewport_size({"width": width, "height": 850})
            found += [(scheme, width, *each) for each in findings(page)]
        assert found == []


def findings(page: "Page") -> list[tuple[str, str]]:
    """The rules that the page breaks, each with the first elements that do."""
    page.evaluate(AXE.read_text())
    result = page.evaluate("axe.run(document, { resultTypes: ['violations'] })")
    return [
        (f"{each['impact']}: {each['id']}", "; ".join(node["html"][:160] for node in each["nodes"][:3]))
        for each in result["violations"]
        if each["impact"] in ("serious", "critical")
    ]


def test_axe_would_find_something(whole: Whole, open_page: OpenPage) -> None:
    """Its rules are in force: a field without a name is found."""
    if not AXE.is_file():
        pytest.skip("axe-core is not installed: make install does it where npm is")
    with open_page(whole.address("documentation")) as page:
        page.evaluate("document.querySelector('main').append(document.createElement('input'))")
        assert [rule for rule, _ in findings(page)] == ["critical: label"]


@pytest.mark.parametrize("name", NAMES)
def test_everything_on_a_page_is_reached_by_tab_and_seen_to_be(
    whole: Whole, open_page: OpenPage, name: str
) -> None:
    with open_page(whole.address(name), expects=404 if "not-found" in name else None) as page:
        wait_for_parts(page, name)
        page.evaluate(f"window.reached = new Set(); window.focusable = () => {ALL_FOCUSABLE}")
        unseen = []
        for _ in range(page.evaluate("focusable().length") + 5):
            page.keyboard.press("Tab")
            outline, text = page.evaluate(
                "() => { const at = document.activeElement; reached.add(at);"
                " return [getComputedStyle(at).outlineStyle, at.outerHTML.slice(0, 120)]; }"
            )
            if outline == "none" and not text.startswith("<body"):
                unseen.append(text)
        assert unseen == []
        missed = page.evaluate(
            "focusable().filter((each) => !reached.has(each)).map((each) => each.outerHTML)"
        )
        assert missed == []


@pytest.mark.parametrize("name", [name for name in NAMES if name not in ("job", "model")])
def test_a_page_is_of_use_without_scripts(whole: Whole, open_page: OpenPage, name: str) -> None:
    with open_page(whole.address(name), scripts=False, expects=404 if "not-found" in name else None) as page:
        assert page.locator("h1").first.is_visible() or name == "log"
        assert page.locator("main").inner_text().strip()


def test_a_release_is_promoted_and_rolled_back_by_keyboard(whole: Whole, open_page: OpenPage) -> None:
    with open_page(whole.address("model")) as page:
        before = page.locator(".facts a.id").inner_text()
        row = (
            page.locator(".releases li", has=page.locator("summary")).filter(has_not_text="not blessed").first
        )
        chosen = row.locator(".id").inner_text()
        row.locator("summary").focus()
        page.keyboard.press("Enter")
        page.keyboard.press("Tab")
        expect(row.get_by_role("button", name="Promote this release")).to_be_focused()
        page.keyboard.press("Enter")
        expect(page.locator(".facts a.id")).to_have_text(chosen)
        page.locator("#roll-back summary").focus()
        page.keyboard.press("Enter")
        page.keyboard.press("Tab")
        page.keyboard.press("Enter")
        expect(page.locator(".facts a.id")).to_have_text(before)
        expect(page.locator("#promotions li").first).to_contain_text("rolled back")


def test_a_delivery_is_sent_again_and_followed(whole: Whole, open_page: OpenPage) -> None:
    with open_page(whole.address("delivery")) as page:
        expect(page.locator(".facts .pill")).to_have_text("given up")
        whole.receiver.answers = [204]
        page.get_by_role("button", name="Send again").click()
        expect(page.locator(".facts .pill")).to_have_text("delivered")
        expect(page.locator("#tries tbody tr").first).to_contain_text("204")


def test_filters_narrow_the_list_as_they_are_filled_in(whole: Whole, open_page: OpenPage) -> None:
    with open_page(whole.url) as page:
        page.evaluate("window.stayed = true")
        page.locator("#narrow summary").click()
        page.get_by_label("Model", exact=True).fill(MODEL)
        page.keyboard.press("Tab")
        expect(page.locator(".narrowings")).to_contain_text(f"model: {MODEL}")
        expect(page.locator(".job")).to_have_count(6)
        assert page.url.endswith(f"?model={MODEL}") and page.evaluate("window.stayed")
        page.get_by_role("link", name="remove this filter").click()
        expect(page.locator(".narrowings")).to_have_count(0)
        page.locator(".chip", has_text="region: eu").first.click()
        expect(page.locator(".job")).to_have_count(1)


def test_a_call_is_filled_in_copied_and_tried(whole: Whole, open_page: OpenPage) -> None:
    with open_page(whole.address("api")) as page:
        page.context.grant_permissions(["clipboard-read", "clipboard-write"])
        call = page.locator("details").filter(has=page.locator('[data-path="/models/{name}/promoted"]'))
        call.locator("summary").click()
        call.get_by_label("name").fill(MODEL)
        command = (
            f'curl "{whole.url}/models/{MODEL}/promoted" \\\n  -H "Authorization: Bearer $SLIPWAY_API_KEY"'
        )
        expect(call.locator(".curl")).to_have_text(command)
        call.get_by_role("button", name="Copy for curl").click()
        expect(call.get_by_role("status")).to_have_text("Copied")
        assert page.evaluate("navigator.clipboard.readText()") == command
        call.get_by_role("button", name="Send GET").click()
        expect(call.get_by_role("status")).to_have_text("200 OK")
        expect(call.locator("[data-answer]")).to_contain_text(f'"model": "{MODEL}"')


def test_what_a_tried_call_is_refused_for_is_shown(whole: Whole, open_page: OpenPage) -> None:
    with open_page(whole.address("api"), expects=422) as page:
        call = page.locator("details").filter(
            has=page.locator('form[data-method="POST"][data-path="/exports"]')
        )
        call.locator("summary").click()
        call.get_by_label("Body").fill('{"it\'s": 1}')
        expect(call.locator(".curl")).to_contain_text("-d '{\"it'\\''s\": 1}'")
        call.get_by_role("button", name="Send POST for real").click()
        expect(call.get_by_role("status")).to_contain_text("422")
        expect(call.locator("[data-answer]")).to_contain_text("invalid_request")
