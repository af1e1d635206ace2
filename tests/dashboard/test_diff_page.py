"""The comparison of two releases: as a page, as a file of its own, and over the API."""

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from exporter.artifact.reports import put_report
from exporter.reports.comparison import (
    DIFF_NAME,
    MOST_CHANGES,
    MOST_OUTPUTS,
    MOST_TABLES,
    Comparison,
    Histogram,
)
from exporter.storage.open import open_store
from jobs.model import Job
from jobs.stores.memory_store import MemoryJobStore
from service.dashboard.diff_page import render_diff
from service.dashboard.histograms import histogram_bars
from service.dashboard.render import STATIC
from tests.dashboard import diffs, sample

VOID = {"meta", "link", "br", "img", "input"}  # of HTML; elements of SVG are closed


class Structure(HTMLParser):
    """The elements of a page; an element that is not closed, or closed twice, is an error."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def ids(self) -> list[str]:
        return [name for _, attributes in self.elements if (name := attributes.get("id"))]


@pytest.fixture
def job(store: MemoryJobStore, tmp_path: Path) -> Job:
    job = sample.published(tmp_path)
    store.add(job, sample.CONFIG_TEXT)
    return job


@pytest.fixture
def compared(job: Job) -> Job:
    assert job.manifest_uri is not None
    folder = str(Path(job.manifest_uri).parent)
    put_report(DIFF_NAME, comparison_of(job), open_store(folder), may_write=lambda: None)
    return job


def comparison_of(job: Job) -> Comparison:
    return diffs.comparison().model_copy(update={"new": diffs.SIDE.model_copy(update={"job_id": job.id})})


def test_a_file_of_its_own_loads_nothing_and_runs_nothing() -> None:
    text = render_diff(diffs.comparison(many=3))
    page = Structure(text)
    tags = {tag for tag, _ in page.elements}
    assert tags.isdisjoint({"script", "link", "img", "iframe", "object", "embed", "form", "base", "a"})
    named = {name for _, attributes in page.elements for name in attributes}
    assert named.isdisjoint({"src", "href", "style", "action", "srcset", "onload", "onclick"})
    assert "url(" not in text and "@import" not in text
    [policy] = [each["content"] for tag, each in page.elements if each.get("http-equiv")]
    assert policy is not None and policy.startswith("default-src 'none'; style-src 'unsafe-inline'")
    assert len(page.ids()) == len(set(page.ids()))


def test_the_file_has_every_part_and_plots() -> None:
    text = render_diff(diffs.comparison())
    page = Structure(text)
    for said in (
        "What differs",
        "Settings",
        "Versions and sources",
        "Inputs and dims",
        "4711",
        "1 of 31 other weights changed",
        "Quantiles of",
        "× 1.25, between × 1.20 and × 1.30",
        "Only the new release has it",
        "9 of 12 found again by id",
        "1 kB to 2 kB in all",
        "1 rows are not finite",
    ):
        assert said in text, said
    plots = [each for tag, each in page.elements if tag == "svg"]
    assert len(plots) == 5  # changes and norms of a table, an output, latency, cosines of vectors
    for plot in plots:
        assert {plot.get("aria-labelledby"), plot.get("aria-describedby"), None} - {
            None,
            *page.ids(),
        } == set()
    assert (STATIC / "style.css").read_text() in text


def test_names_of_strangers_are_shown_as_text() -> None:
    text = render_diff(diffs.comparison())
    assert sample.NASTY not in text
    assert "&lt;script&gt;" in text
    page = Structure(text)
    assert "script" not in {tag for tag, _ in page.elements}
    deceptive = diffs.comparison().model_copy(
        update={"old": diffs.SIDE.model_copy(update={"family": "dlrm\u202egnp.exe"})}
    )
    assert "\u202e" not in render_diff(deceptive)


def test_equal_releases_say_so() -> None:
    same = Comparison(old=diffs.SIDE, new=diffs.SIDE, same=True)
    assert "No differences in what is served" in render_diff(same)


def test_the_page_shows_the_comparison_beside_the_manifest(client: TestClient, compared: Job) -> None:
    answer = client.get(f"/jobs/{compared.id}/diff")
    assert answer.status_code == 200
    assert "What differs" in answer.text and f'href="/exports/{compared.id}/diff"' in answer.text
    assert "unsafe" not in answer.headers["content-security-policy"]
    assert re.findall(r"<style|\sstyle=|<script>|\son\w+=", answer.text) == []
    Structure(answer.text)
    assert f'href="/jobs/{compared.id}/diff"' in client.get(f"/jobs/{compared.id}").text


def test_a_page_without_a_comparison_says_how_to_get_one(client: TestClient, job: Job) -> None:
    answer = client.get(f"/jobs/{job.id}/diff")
    assert answer.status_code == 200
    assert f"slipway diff OLD {job.id} --html" in answer.text


def test_the_comparison_is_served_as_json(client: TestClient, compared: Job) -> None:
    answer = client.get(f"/exports/{compared.id}/diff")
    assert Comparison.model_validate(answer.json()) == comparison_of(compared)


def test_no_comparison_and_a_damaged_one_are_no_artifact(client: TestClient, job: Job) -> None:
    answer = client.get(f"/exports/{job.id}/diff")
    assert (answer.status_code, answer.json()["code"]) == (404, "no_artifact")
    assert f"slipway diff OLD {job.id}" in answer.json()["hint"]
    assert job.manifest_uri is not None
    file = Path(job.manifest_uri).with_name(DIFF_NAME)
    of_another = diffs.comparison().model_dump_json()
    beyond_edges = of_another.replace('"old":[50,100,50]', '"old":[50,100,50,1]')
    for text, said in (
        ("{", "Invalid JSON"),
        ('{"version": 2}', "version"),
        (of_another, "is of job new"),
        (beyond_edges, "a histogram has one number less than edges"),
    ):
        file.write_text(text)
        answer = client.get(f"/exports/{job.id}/diff")
        assert (answer.status_code, answer.json()["code"]) == (404, "no_artifact")
        assert said in answer.json()["detail"]
        assert "There is no comparison to show" in client.get(f"/jobs/{job.id}/diff").text


def test_a_job_that_is_not_there_has_no_comparison(client: TestClient) -> None:
    answer = client.get("/exports/01jd6v7x4mzq3w8c5kftn2rbha/diff")
    assert (answer.status_code, answer.json()["code"]) == (404, "job_not_found")


def test_json_and_html_of_the_largest_comparison_are_bounded() -> None:
    largest = diffs.comparison(many=max(MOST_CHANGES, MOST_TABLES))
    tower = largest.towers[0]
    assert tower.outputs is not None
    few = tower.outputs.model_copy(update={"outputs": tower.outputs.outputs[:MOST_OUTPUTS]})
    largest = largest.model_copy(update={"towers": (tower.model_copy(update={"outputs": few}),)})
    assert len(largest.model_dump_json()) < 1_000_000
    assert len(render_diff(largest)) < 2_000_000


def test_a_histogram_is_drawn_in_proportion() -> None:
    bars = histogram_bars(Histogram(edges=(0.0, 1.0, 2.0), old=(10, 5), new=(0, 20)))
    assert bars is not None
    heights = {(bar.side, bar.label): bar.height for bar in bars.bars}
    assert sorted(heights.values()) == [pytest.approx(each, abs=0.1) for each in (47.5, 95, 190)]
    assert all(bars.left <= bar.x and bar.x + bar.width <= bars.right + 0.1 for bar in bars.bars)
    assert histogram_bars(Histogram(edges=(0.0, 1.0), old=(0,), new=())) is None
    assert histogram_bars(None) is None
