"""Links of the documents lead somewhere: to files and headings of ours; of other hosts the form is held."""

import subprocess
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.architecture.tree import ROOT
from tests.documents.markdown import anchors_of, links_of

_LISTED = subprocess.run(["git", "ls-files", "*.md"], cwd=ROOT, capture_output=True, text=True, check=True)
PAGES = [page for page in _LISTED.stdout.splitlines() if not page.startswith("tests/fixtures")]
PICTURES = ROOT / "docs" / "pictures"
MAX_PICTURE = 200_000  # bytes


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page: str) -> None:
    links = links_of((ROOT / page).read_text())
    assert {link: wrong for link in links if (wrong := _what_is_wrong(ROOT / page, link))} == {}


def test_every_page_of_docs_is_in_the_index() -> None:
    index = ROOT / "docs" / "README.md"
    linked = {(index.parent / link.partition("#")[0]).resolve() for link in links_of(index.read_text())}
    pages = {path for path in (ROOT / "docs").glob("*.md") if path != index}
    assert sorted(path.name for path in pages - linked) == []


def test_pictures_are_small_and_shown() -> None:
    links = [(ROOT / page, link) for page in PAGES for link in links_of((ROOT / page).read_text())]
    shown = {(page.parent / link).resolve() for page, link in links}
    pictures = sorted(PICTURES.iterdir())
    assert pictures and [path.name for path in pictures if path not in shown] == []
    assert [path.name for path in pictures if path.stat().st_size > MAX_PICTURE] == []


@pytest.mark.parametrize(
    ("link", "wrong"),
    [
        ("README.md", None),
        ("docs/stores.md#what-is-not-there", "no heading"),
        ("docs/no-such.md", "no file"),
        ("https://example.com/a", None),
        ("http://example.com", "not https"),
        ("https://user@example.com", "no host"),
        ("https://localhost/x", "no host"),
    ],
)
def test_a_wrong_link_is_told(link: str, wrong: str | None) -> None:
    assert _what_is_wrong(ROOT / "README.md", link) == wrong


def _what_is_wrong(page: Path, link: str) -> str | None:
    parts = urlsplit(link)
    if parts.scheme:
        if parts.scheme != "https":
            return "not https"
        return None if "." in parts.netloc and "@" not in parts.netloc else "no host"
    file = (page.parent / parts.path).resolve() if parts.path else page
    if not file.exists():
        return "no file"
    if parts.fragment and parts.fragment not in anchors_of(file.read_text()):
        return "no heading"
    return None
