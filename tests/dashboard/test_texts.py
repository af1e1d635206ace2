"""A job's log and its config: read by stage, searched, followed and downloaded."""

import re

import pytest
from starlette.testclient import TestClient

from exporter.spec import TowerName
from exporter.stages import Stage
from jobs.diagnostics.logs import LogPart
from jobs.model import Job, JobState
from jobs.stores.memory_store import MemoryJobStore
from service.dependencies import Backend
from tests.dashboard import sample

PARTS = (
    LogPart(lines=("03:04:05 ranks begin",)),
    LogPart(tower=TowerName.USER, stage=Stage.TRACE, lines=("03:04:06 tracing user",)),
    LogPart(tower=TowerName.USER, stage=Stage.COMPILE, lines=("03:04:07 g++ one", "03:04:08 warning")),
    LogPart(tower=TowerName.ITEM, stage=Stage.COMPILE, lines=("03:04:09 G++ two",)),
)


@pytest.fixture
def running(store: MemoryJobStore, backend: Backend) -> Job:
    """A running job with a log."""
    towers = [sample.at_work(name, Stage.VERIFY, 0.3, "") for name in (TowerName.USER, TowerName.ITEM)]
    job = sample.job(JobState.RUNNING, *towers)
    store.add(job, sample.CONFIG_TEXT)
    backend.logs.append(job.id, PARTS)
    return job


def shown(text: str) -> list[str]:
    return [line for block in re.findall(r"<pre>(.*?)</pre>", text, re.DOTALL) for line in block.split("\n")]


def test_the_log_of_a_stage_is_where_its_name_leads(client: TestClient, running: Job) -> None:
    page = client.get(f"/jobs/{running.id}").text
    links = re.findall(r'<a class="stage-name" href="([^"]+)"', page)
    assert len(links) == len(set(links)) + 1  # the start-up is that of both towers
    for link in links:
        assert client.get(link.replace("&amp;", "&")).status_code == 200
    [compiling] = [link for link in links if "tower=user" in link and "stage=compile" in link]
    answer = client.get(compiling.replace("&amp;", "&")).text
    assert shown(answer) == ["03:04:07 g++ one", "03:04:08 warning"]
    assert "<title>Log of user tower, compile: " in answer and "took 49 s" in answer
    [start] = {link for link in links if "stage=start" in link}
    assert shown(client.get(start).text) == ["03:04:05 ranks begin"]
    assert ">publish</a>" not in page  # it has not begun


@pytest.mark.parametrize(
    ("query", "lines"),
    [
        ("q=g%2B%2B", ["03:04:07 g++ one", "03:04:09 G++ two"]),
        ("q=g%2B%2B&tower=item", ["03:04:09 G++ two"]),
        ("q=two+g%2B%2B&stage=&tower=", ["03:04:09 G++ two"]),
        ("q=nowhere", []),
    ],
)
def test_lines_are_found_by_words(client: TestClient, running: Job, query: str, lines: list[str]) -> None:
    text = client.get(f"/jobs/{running.id}/log?{query}").text
    assert shown(text) == lines
    assert ("No line of the log is like that" in text) is (lines == [])


def test_a_part_says_how_many_of_its_lines_are_shown(client: TestClient, running: Job) -> None:
    text = client.get(f"/jobs/{running.id}/log?q=warning").text
    assert "1 of 2 lines" in text


def test_the_log_is_downloaded_as_it_is_chosen(client: TestClient, running: Job) -> None:
    page = client.get(f"/jobs/{running.id}/log?tower=user&q=03").text
    [link] = re.findall(r'href="([^"]+)" download', page)
    answer = client.get(link.replace("&amp;", "&"))
    assert answer.headers["content-type"].startswith("text/plain")
    assert answer.headers["content-disposition"] == f'attachment; filename="{running.id}-log.txt"'
    assert answer.text.splitlines() == [
        "== user tower, trace",
        "03:04:06 tracing user",
        "== user tower, compile",
        "03:04:07 g++ one",
        "03:04:08 warning",
    ]


def test_a_log_is_followed_until_somebody_stops_that(
    client: TestClient, store: MemoryJobStore, running: Job
) -> None:
    page = f"/jobs/{running.id}/log?tower=user"
    text = client.get(page).text
    assert 'data-every="2"' in text and "Stop following" in text
    [pause] = re.findall(r'href="([^"]+follow=no)"', text)
    text = client.get(pause.replace("&amp;", "&")).text
    assert 'data-every="0"' in text and f'href="{page}"' in text.replace("&amp;", "&")
    ended = running.model_copy(update={"state": JobState.CANCELLED, "revision": 2})
    assert store.replace(running, ended)
    text = client.get(page).text
    assert 'data-every="0"' in text and "ollow" not in text


@pytest.mark.parametrize("query", ["tower=cellar", "stage=lunch", f"q={'x' * 201}"])
def test_a_log_that_cannot_be_chosen_is_an_error(client: TestClient, running: Job, query: str) -> None:
    for page in ("log", "log/download"):
        assert client.get(f"/jobs/{running.id}/{page}?{query}").status_code == 422


def test_words_and_lines_are_no_markup(client: TestClient, backend: Backend, running: Job) -> None:
    backend.logs.append(running.id, [LogPart(lines=(f"03:04:05 {sample.NASTY}",))])
    text = client.get(f"/jobs/{running.id}/log", params={"q": sample.NASTY}).text
    assert sample.NASTY not in text and text.count("&lt;script&gt;") >= 2


def test_the_config_can_be_read_line_by_line(client: TestClient, running: Job) -> None:
    text = client.get(f"/jobs/{running.id}/config").text
    lines = sample.CONFIG_TEXT.rstrip("\n").split("\n")
    assert text.count('<li id="line-') == len(lines)
    assert f'<li id="line-2"><code>{lines[1]}</code></li>'.replace('"', "&#34;") in text.replace('"', "&#34;")
    assert running.spec.config_sha256 in text
    answer = client.get(f"/jobs/{running.id}/config/download")
    assert answer.text == sample.CONFIG_TEXT
    assert answer.headers["content-disposition"].startswith("attachment; ")


def test_the_config_is_shown_without_markup_secrets_and_deceptive_characters(
    client: TestClient, store: MemoryJobStore
) -> None:
    job = sample.job(JobState.QUEUED)
    store.add(job, f"a: '{sample.NASTY}'\nb: 's3://user:hunter22@m'\nc: '\u202egnp.exe'\n")
    text = client.get(f"/jobs/{job.id}/config").text
    for hidden in (sample.NASTY, "hunter22", "\u202e"):
        assert hidden not in text
    assert "hunter22" not in client.get(f"/jobs/{job.id}/config/download").text


def test_of_a_huge_config_the_beginning_is_shown(client: TestClient, store: MemoryJobStore) -> None:
    job = sample.job(JobState.QUEUED)
    store.add(job, "line\n" * 20_000)
    answer = client.get(f"/jobs/{job.id}/config")
    assert answer.text.count("<li id=") == 5000 and "Only a part of it is shown" in answer.text
    assert client.get(f"/jobs/{job.id}/config/download").text == "line\n" * 20_000
