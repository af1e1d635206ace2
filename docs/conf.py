"""The site of the documents, which `make docs` builds with Sphinx from the Markdown files where they lie.

What GitHub shows needs no directive of Sphinx. The contents beside the pages come from the tables of
docs/README.md, and a file that is named in code (`docs/stores.md`) becomes a link.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util import logging

ROOT = Path(__file__).parents[1]

project = "Slipway"
extensions = ["myst_parser"]
root_doc = "docs/README"
include_patterns = [
    "*.md",
    "docs/**.md",
    "benchmarks/**.md",
    "deploy/helm/slipway/README.md",
    "examples/*/README.md",
    "slipway/README.md",
    "tests/README.md",
]
exclude_patterns = [".*", "**/__pycache__", "**/node_modules", "tests/fixtures", "build", "dist", "**/build"]
html_theme = "furo"
html_title = "Slipway"
html_copy_source = False
html_show_copyright = False
myst_heading_anchors = 6

_INDEX = '<!doctype html><title>Slipway</title><meta http-equiv="refresh" content="0; url=docs/README.html">'
_FOLDERS = {"docs/decisions/README": "/docs/decisions/[0-9]*", "benchmarks/README": "/benchmarks/results/*"}
_LINK = re.compile(r"\]\(([\w./-]+\.md)\)")
_NAMED = re.compile(r"(?<!\[)`((?:[\w-]+/)*[\w-]+\.md)`")
_FENCED = re.compile(r"^(```.*?^```$)", re.MULTILINE | re.DOTALL)
_log = logging.getLogger(__name__)


def setup(app: Sphinx) -> None:
    """Connect what follows to the stages of a build."""
    app.connect("source-read", _add_links)
    app.connect("doctree-resolved", _check_addresses)
    app.connect("build-finished", _write_index)


def _add_links(_: Sphinx, page: str, source: list[str]) -> None:
    """Make links of the files that a page names, and give pages their contents."""
    parts = _FENCED.split(source[0])
    parts[::2] = [_NAMED.sub(lambda named: _link_to(named[1], page), part) for part in parts[::2]]
    source[0] = "".join(parts)
    if page == root_doc:
        source[0] += "".join(_contents(source[0]))
    if page in _FOLDERS:
        source[0] += _toctree("", [_FOLDERS[page]])


def _link_to(name: str, page: str) -> str:
    for place in (ROOT / name, (ROOT / page).parent / name):
        if place.is_file():
            return f"[`{name}`](/{place.relative_to(ROOT)})"
    return f"`{name}`"


def _contents(text: str) -> Iterator[str]:
    """Yield the contents of each section of the first page; a page stands in the first that names it."""
    listed: set[Path] = set()
    for section in re.split(r"^## ", text, flags=re.MULTILINE)[1:]:
        files = [(ROOT / "docs" / link).resolve() for link in _LINK.findall(section)]
        new = [file for file in dict.fromkeys(files) if file not in listed]
        listed.update(new)
        names = [f"/{file.relative_to(ROOT).with_suffix('')}" for file in new]
        yield _toctree(section.partition("\n")[0], names)


def _toctree(caption: str, names: list[str]) -> str:
    options = [f":caption: {caption}", ":hidden:"] if caption else [":glob:", ":maxdepth: 1"]
    return "\n".join(["\n\n```{toctree}", *options, "", *names, "```\n"])


def _check_addresses(_: Sphinx, document: nodes.document, page: str) -> None:
    """Warn of links to other hosts that are malformed; nobody is asked."""
    for link in document.findall(nodes.reference):
        address = urlsplit(link.get("refuri", ""))
        is_form = address.scheme == "https" and "." in address.netloc and "@" not in address.netloc
        if address.netloc and not is_form:
            _log.warning("%s is no address of a page", address.geturl(), location=page)


def _write_index(app: Sphinx, error: Exception | None) -> None:
    if error is None:
        Path(app.outdir, "index.html").write_text(_INDEX + "\n")
