"""Narrowing the list of jobs by model, family, label, owner and target, and families in titles."""

import re
from html import unescape

import pytest
from starlette.testclient import TestClient

from jobs.model import Job, JobState
from jobs.stores.memory_store import MemoryJobStore
from tests.dashboard import sample


@pytest.fixture
def jobs(store: MemoryJobStore) -> dict[str, Job]:
    """Two jobs that differ in everything that the list can be narrowed by, and one of an older version."""
    plain = sample.job(JobState.QUEUED)
    changes: dict[str, dict[str, object]] = {
        "ads": {"model": "ranker", "family": "dssm", "labels": {"team": "ads"}, "owner": "ann"},
        "feed": {"model": "ranker-2", "family": "hstu_match", "labels": {"team": "feed"}, "owner": "bob"},
        "old": {},
    }
    targets = {"ads": ("avx2", "avx512"), "feed": ("sm_90",), "old": None}
    made = {}
    for name, change in changes.items():
        spec = plain.spec.model_copy(update={"target": targets[name]})
        made[name] = sample.job(JobState.QUEUED).model_copy(update={**change, "spec": spec})
        store.add(made[name], sample.CONFIG_TEXT)
    return made


def shown(client: TestClient, jobs: dict[str, Job], query: str) -> set[str]:
    answer = client.get(f"/?{query}")
    assert answer.status_code == 200
    return {name for name, job in jobs.items() if f'id="job-{job.id}"' in answer.text}


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("model=ranker", {"ads"}),
        ("model=RANKER-2", {"feed"}),
        ("model=rank", set()),
        ("family=dssm", {"ads"}),
        ("label=team", {"ads", "feed"}),
        ("label=team:ads", {"ads"}),
        ("label=team:%20ads", {"ads"}),
        ("label=tea", set()),
        ("owner=bob", {"feed"}),
        ("owner=anyone", {"old"}),
        ("target=avx512", {"ads"}),
        ("target=cpu", {"old"}),
        ("target=sm_90&owner=bob&label=team:feed", {"feed"}),
        ("target=sm_90&owner=ann", set()),
        ("family=dssm&state=queued", {"ads"}),
        ("family=dssm&state=failed", set()),
        ("q=hstu&family=dssm", {"ads"}),  # its checkpoint's name
        ("q=feed", {"feed"}),
        ("q=dssm", {"ads"}),
        ("model=&family=&label=&owner=&target=", {"ads", "feed", "old"}),
    ],
)
def test_the_list_is_narrowed(
    client: TestClient, jobs: dict[str, Job], query: str, expected: set[str]
) -> None:
    assert shown(client, jobs, query) == expected


def test_filters_are_shown_each_with_a_link_to_the_list_without_it(
    client: TestClient, jobs: dict[str, Job]
) -> None:
    text = client.get("/?model=ranker&owner=ann&state=queued").text
    links = {unescape(each) for each in re.findall(r'<li><a href="([^"]+)">', text)}
    assert links == {"/?state=queued&owner=ann", "/?state=queued&model=ranker"}
    states = {unescape(each) for each in re.findall(r'<a href="([^"]+)" class="failed"', text)}
    assert states == {"/?state=failed&model=ranker&owner=ann"}
    assert '<details class="narrow" id="narrow" open>' in text
    assert 'name="model" type="search" value="ranker"' in text


def test_the_fields_offer_what_the_shown_jobs_name(client: TestClient, jobs: dict[str, Job]) -> None:
    offered = set(re.findall(r'<option value="([^"]*)">', client.get("/").text))
    assert {"ranker", "ranker-2", "dssm", "hstu_match", "team:ads", "team:feed", "bob", "sm_90"} <= offered
    text = client.get("/?owner=ann").text
    assert "ranker-2" not in text


def test_a_label_leads_to_the_jobs_that_have_it(client: TestClient, jobs: dict[str, Job]) -> None:
    assert 'class="chip" href="/?label=team%3Aads"' in client.get("/").text
    assert shown(client, jobs, "label=team%3Aads") == {"ads"}


def test_what_was_not_found_is_said(client: TestClient, jobs: dict[str, Job]) -> None:
    assert "No export of model none and owner ann was found." in client.get("/?model=none&owner=ann").text


def test_older_pages_keep_the_filters(client: TestClient, store: MemoryJobStore) -> None:
    for _ in range(52):
        store.add(sample.job(JobState.QUEUED).model_copy(update={"model": "m"}), sample.CONFIG_TEXT)
    [older] = re.findall(r'<a href="([^"]+)" rel="next"', client.get("/?model=m").text)
    text = client.get(unescape(older)).text
    assert "model=m" in older and text.count('class="job"') == 2


@pytest.mark.parametrize("page", ["", "/log", "/report", "/diff"])
def test_the_family_is_in_every_title_of_a_job(client: TestClient, jobs: dict[str, Job], page: str) -> None:
    title, heading = r"<title>(.*?)</title>", r"<h1>(.*?)</h1>"
    text = client.get(f"/jobs/{jobs['ads'].id}{page}").text
    for pattern in (title, *([] if page == "/log" else [heading])):
        [found] = re.findall(pattern, text)
        assert "ranker · dssm · hstu_match/model.ckpt-1100" in found
    [old] = re.findall(title, client.get(f"/jobs/{jobs['old'].id}{page}").text)
    assert "hstu_match/model.ckpt-1100" in old and "·" not in old


def test_a_filter_is_no_markup(client: TestClient, jobs: dict[str, Job]) -> None:
    for name in ("model", "family", "label", "owner", "target", "q"):
        text = client.get("/", params={name: sample.NASTY}).text
        assert sample.NASTY not in text
