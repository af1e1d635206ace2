"""Lists, pages and models of a team whose jobs are few among many."""

import pytest
from starlette.testclient import TestClient

from jobs.control.releases import Releases
from jobs.ids import JobId
from jobs.model import Job
from tests.service.teams.sample import CONFIG_TEXT, backend_of, bearer, finish, job_of

MINE, THEIRS = "adsteam", "feedteam"
TOTAL = 1000


@pytest.fixture
def mine(client: TestClient) -> list[JobId]:
    """Three of a thousand jobs: the newest, one in the middle, and the oldest."""
    store = backend_of(client).stores.jobs.store
    numbers = {0, TOTAL // 2, TOTAL - 1}
    jobs = [
        _numbered(job_of(MINE if number in numbers else THEIRS, "s3://b"), number) for number in range(TOTAL)
    ]
    for job in jobs:
        store.add(job, CONFIG_TEXT)
    return [job.id for number, job in enumerate(jobs) if number in numbers][::-1]


def _numbered(job: Job, number: int) -> Job:
    return job.model_copy(update={"id": JobId(f"{number:010d}{job.id[10:]}")})


def listed(client: TestClient, name: str, **query: object) -> list[list[str]]:
    """The ids on each page until the last."""
    pages: list[list[str]] = []
    given = {key: str(value) for key, value in query.items()}
    while True:
        answer = client.get("/exports", params=given, headers=bearer(name)).json()
        pages.append([job["id"] for job in answer["jobs"]])
        if answer["next_cursor"] is None:
            return pages
        given["cursor"] = answer["next_cursor"]


def test_three_of_a_thousand_jobs_are_found(client: TestClient, mine: list[JobId]) -> None:
    assert listed(client, MINE, limit=20) == [mine]
    assert listed(client, MINE, limit=2) == [mine[:2], mine[2:]]
    assert listed(client, MINE, state="queued") == [mine]
    assert listed(client, MINE, state="failed") == [[]]
    assert sum(map(len, listed(client, "everyone", limit=100))) == TOTAL
    assert listed(client, "nowhere") == [[]]


def test_pages_of_the_dashboard_count_nothing_of_others(client: TestClient, mine: list[JobId]) -> None:
    first = client.get("/", headers=bearer(MINE)).text
    assert [job in first for job in mine] == [True] * 3
    assert str(TOTAL) not in first and THEIRS not in first
    workers = client.get("/workers", headers=bearer(MINE)).text
    assert "<strong>3</strong> queued" in workers
    searched = client.get(f"/?q={mine[1][:12]}", headers=bearer(MINE)).text
    assert [f'href="/jobs/{job}"' in searched for job in mine] == [False, True, False]
    whole = client.get("/workers", headers=bearer("everyone")).text
    assert f"<strong>{TOTAL}</strong> queued" in whole


def test_models_are_those_with_a_visible_release(client: TestClient) -> None:
    """A name that two teams use has a latest release for each of them."""
    stores = backend_of(client).stores
    ours = finish(stores, job_of(MINE, "s3://b", model="shared"))
    theirs = finish(stores, job_of(THEIRS, "s3://b", model="shared"))
    finish(stores, job_of(THEIRS, "s3://b", model="b-theirs"))
    assert client.get("/models", headers=bearer(MINE)).json()["models"] == ["shared"]
    latest = {
        name: client.get("/models/shared/latest", headers=bearer(name)).json()["job_id"]
        for name in (MINE, THEIRS, "everyone")
    }
    assert latest == {MINE: ours.id, THEIRS: theirs.id, "everyone": theirs.id}
    Releases(stores.jobs.store, stores.pointers).promote("shared", theirs.id)
    answers = {name: client.get("/models/shared/promoted", headers=bearer(name)) for name in (MINE, THEIRS)}
    assert [answers[MINE].status_code, answers[THEIRS].status_code] == [404, 200]
    assert answers[MINE].json()["detail"] == "there is no promoted release of a model shared"


def test_pages_of_models_show_no_other_names(client: TestClient) -> None:
    stores = backend_of(client).stores
    for name in ("a-theirs", "b-ours", "c-theirs", "d-ours", "e-theirs"):
        finish(stores, job_of(MINE if "ours" in name else THEIRS, "s3://b", model=name))
    found, cursors, query = [], [], {"limit": "1"}
    for _ in range(4):
        answer = client.get("/models", params=query, headers=bearer(MINE)).json()
        found += answer["models"]
        cursors.append(answer["next_cursor"])
        if answer["next_cursor"] is None:
            break
        query["cursor"] = answer["next_cursor"]
    assert found == ["b-ours", "d-ours"]
    assert "theirs" not in str(cursors) and cursors[-1] is None
