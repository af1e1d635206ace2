"""Running an export again with changes: a form with the request as JSON."""

import json
import re
from html import unescape
from typing import Any

import pytest
from starlette.testclient import TestClient

from exporter.options.index_spec import IvfFlatIndex
from exporter.options.release_gate import ReleaseGate
from exporter.options.tables import Tables
from exporter.spec import AttentionKind, LowPrecision, SetPrecision, SwapAttention, TowerName
from jobs.model import Job, JobState
from jobs.request import JobOptions, Priority
from jobs.stores.memory_store import MemoryJobStore
from service.dashboard.job.rerun import format_request, parse_request
from tests.dashboard import sample
from tests.dashboard.conftest import KEYS
from tests.service.requests import export_request

FIELD = re.compile(r"<textarea[^>]*>\n(.*?)</textarea>", re.DOTALL)


@pytest.fixture
def submitted(client: TestClient, store: MemoryJobStore) -> Job:
    """A finished job whose request can be posted here."""
    body = export_request(model="ranker", labels={"region": "eu"}, max_batch_size=64, output_uri="/tmp/out")
    job = store.get(client.post("/exports", json=body).json()["id"])
    ended = job.model_copy(update={"state": JobState.CANCELLED, "revision": job.revision + 1})
    assert store.replace(job, ended)
    return ended


def request_of(client: TestClient, job: Job) -> dict[str, Any]:
    found = FIELD.findall(client.get(f"/jobs/{job.id}/rerun").text)
    request: dict[str, Any] = json.loads(unescape(found[0]))
    return request


def post(client: TestClient, job: Job, request: object) -> Any:
    text = request if isinstance(request, str) else json.dumps(request)
    return client.post(f"/jobs/{job.id}/rerun", data={"request": text}, follow_redirects=False)


def test_the_form_posts_the_same_request_as_a_new_job(
    client: TestClient, store: MemoryJobStore, submitted: Job
) -> None:
    request = request_of(client, submitted)
    assert (request["max_batch_size"], request["model"], request["labels"]) == (
        64,
        "ranker",
        {"region": "eu"},
    )
    assert "ranks" not in request and "config" not in request
    answer = post(client, submitted, request)
    assert answer.status_code == 303
    new = store.get(answer.headers["location"].removeprefix("/jobs/"))
    assert new.id != submitted.id and new.spec == submitted.spec
    assert (new.model, new.labels, new.config_uri) == ("ranker", {"region": "eu"}, None)
    assert store.config_of(new) == store.config_of(submitted)


def test_a_change_is_taken(client: TestClient, store: MemoryJobStore, submitted: Job) -> None:
    request = request_of(client, submitted) | {"max_batch_size": 32, "labels": {}, "towers": ["user"]}
    new = store.get(post(client, submitted, request).headers["location"].removeprefix("/jobs/"))
    assert (new.spec.max_batch_size, new.labels) == (32, {})
    assert [tower.name for tower in new.towers] == ["user"]


@pytest.mark.parametrize(
    "change",
    [
        {"max_batch_size": 1, "nonsense": 1},
        {"config": "not a config {"},
        {"callback_url": "http://127.0.0.1/x"},
    ],
)
def test_a_mistake_is_told_as_the_api_tells_it_and_the_text_stays(
    client: TestClient, store: MemoryJobStore, submitted: Job, change: dict[str, object]
) -> None:
    request = request_of(client, submitted) | change
    answer = post(client, submitted, request)
    from_api = client.post("/exports", json={"config": sample.CONFIG_TEXT, **request})
    problem = from_api.json()
    assert answer.status_code == from_api.status_code == 422
    text = unescape(answer.text)
    assert problem["detail"] in text and problem["code"] in text and problem["hint"] in text
    assert all(each["where"] in text and each["detail"] in text for each in problem["errors"])
    assert json.loads(unescape(FIELD.findall(answer.text)[0])) == request
    assert len(store.page(limit=10).jobs) == 1


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "the request is no JSON"),
        ("", "the request is no JSON"),
        ("[1]", "Input should be"),
        ("[" * 20_000, "not read as JSON here"),
        ("1" * 5000, "not read as JSON here"),
        (sample.NASTY, "the request is no JSON"),
        ("</textarea>" + sample.NASTY, "the request is no JSON"),
    ],
)
def test_what_is_no_request_is_refused(
    client: TestClient, store: MemoryJobStore, submitted: Job, text: str, said: str
) -> None:
    answer = post(client, submitted, text)
    assert (answer.status_code, said in unescape(answer.text)) == (422, True)
    assert sample.NASTY not in answer.text
    assert len(store.page(limit=10).jobs) == 1


def test_every_option_comes_back_as_it_was() -> None:
    """Parts that are told apart by `kind` keep it although it is at its default."""
    job = sample.job(JobState.FAILED)
    options = {"model": "ranker", "labels": {"a": sample.NASTY}, "priority": Priority.HIGH}
    passes = (
        SetPrecision(tower=TowerName.USER, submodule="a.b", precision=LowPrecision.BF16),
        SwapAttention(tower=TowerName.USER, submodule="a", attention=AttentionKind.HEAD_BY_HEAD),
    )
    changes = {
        "passes": passes,
        "item_index": IvfFlatIndex(nlist=7),
        "materialise_items": True,
        "release_gate": ReleaseGate(max_rows=5),
        "tables": Tables(dtypes={"t": "int4"}),
        "target": ("avx2", "avx512"),
        "ranks": 2,
    }
    job = job.model_copy(update={"spec": job.spec.model_copy(update=changes), **options, "config_uri": None})
    request = parse_request(format_request(job), sample.CONFIG_TEXT)
    assert request.spec == job.spec.with_config(sample.CONFIG_TEXT)
    assert request.options == JobOptions.model_validate(options)
    assert request.force


def test_a_config_that_came_by_uri_is_read_again() -> None:
    job = sample.job(JobState.FAILED)
    request = parse_request(format_request(job), "old text")
    assert (request.config_uri, request.config) == (job.config_uri, None)


@pytest.mark.parametrize(("who", "status"), [("watcher", 403), ("trainer", 422)])
def test_only_who_may_submit_may_run_it_again(
    client: TestClient, guarded: Any, store: MemoryJobStore, submitted: Job, who: str, status: int
) -> None:
    with TestClient(guarded, raise_server_exceptions=False) as reader:
        assert post(reader, submitted, {}).status_code == 401
        reader.cookies.set("slipway_key", KEYS[who])
        assert post(reader, submitted, "{}").status_code == status
        assert reader.get(f"/jobs/{submitted.id}/rerun").status_code == (200 if status == 422 else 403)
        assert ("/rerun" in reader.get(f"/jobs/{submitted.id}").text) is (who == "trainer")
    assert len(store.page(limit=10).jobs) == 1


@pytest.mark.parametrize(("who", "status"), [("watcher", 403), ("trainer", 403), ("releaser", 303)])
def test_only_an_admin_may_promote(
    guarded: Any, store: MemoryJobStore, tmp_path: Any, who: str, status: int
) -> None:
    job = sample.published(tmp_path).model_copy(update={"model": "ranker"})
    store.add(job, sample.CONFIG_TEXT)
    with TestClient(guarded, raise_server_exceptions=False) as reader:
        assert reader.post(f"/jobs/{job.id}/promote").status_code == 401
        reader.cookies.set("slipway_key", KEYS[who])
        assert ("/promote" in reader.get(f"/jobs/{job.id}").text) is (who == "releaser")
        assert reader.post(f"/jobs/{job.id}/promote", follow_redirects=False).status_code == status
