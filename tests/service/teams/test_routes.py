"""Every route of the application: another team's things are to it as things that do not exist."""

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from fastapi import FastAPI
from fastapi.routing import APIRoute, iter_route_contexts
from httpx2 import Response
from starlette.testclient import TestClient

from jobs.ids import new_job_id
from tests.service.hooks.events import training_event
from tests.service.teams.sample import Planted, backend_of, bearer

MINE, THEIRS = "adsteam", "feedteam"
BODIES: dict[str, object] = {"/triggers/{name}/test": training_event(), "/exports/plan": {"config": "x"}}


def calls(app: FastAPI) -> Iterator[tuple[str, str]]:
    for context in iter_route_contexts(app.routes):
        if isinstance(context.original_route, APIRoute):
            for method in context.methods or ():
                yield method, str(context.path)


def filled(path: str, planted: Planted) -> set[str]:
    """The path, with the ids of everything that could be meant by it."""
    if "{job_id}" in path:
        jobs = {path.replace("{job_id}", job.id) for job in planted.jobs}
        return {each.replace("{tower}", "user").replace("{path:path}", "manifest.json") for each in jobs}
    prefix = "/pages" if path.startswith("/pages/") else ""
    path = path.removeprefix(prefix)
    values = {
        "/models/{name}": ("{name}", planted.model),
        "/triggers/{name}": ("{name}", planted.trigger),
        "/subscriptions/": ("{subscription_id}", planted.subscription),
        "/deliveries/": ("{delivery_id}", planted.delivery),
    }
    for start, (parameter, value) in values.items():
        if path.startswith(start):
            path = path.replace(parameter, value)
    assert "{" not in path, "a new kind of thing: say here which of it another team has"
    return {prefix + path}


def asked(client: TestClient, method: str, path: str, template: str, name: str) -> Response:
    return client.request(method, path, json=BODIES.get(template), headers=bearer(name))


def told(answer: Response, path: str) -> tuple[int, str, dict[str, str]]:
    """An answer without the words that were in the question."""
    text = answer.text
    for word in re.findall(r"[a-z0-9-]{6,}", path):
        text = text.replace(word, "·")
    return answer.status_code, text, {**answer.headers, "content-length": "", "etag": ""}


def test_what_another_team_has_is_as_what_nobody_has(
    app: FastAPI, client: TestClient, planted: dict[str, Planted]
) -> None:
    theirs = planted[THEIRS]
    missing = new_job_id()
    seen = []
    for method, template in calls(app):
        if "{" not in template:
            continue
        for path in filled(template, theirs):
            answer = asked(client, method, path, template, MINE)
            assert answer.status_code in (403, 404), (method, path, answer.text)
            last = path.replace(theirs.model, "nomodel").replace(theirs.trigger, "notrigger")
            for known in (*(job.id for job in theirs.jobs), theirs.delivery, theirs.subscription):
                last = last.replace(known, missing)
            unknown = asked(client, method, last, template, MINE)
            assert told(answer, path) == told(unknown, last), (method, path)
            seen.append(template)
    assert len(set(seen)) > 20


def test_who_sees_all_sees_them(app: FastAPI, client: TestClient, planted: dict[str, Planted]) -> None:
    ended = replace(planted[THEIRS], queued=planted[THEIRS].done, running=planted[THEIRS].failed)
    for method, template in calls(app):
        if method == "GET" and "{" in template:
            for name in ("everyone", "chief"):
                answers = [asked(client, "GET", path, template, name) for path in filled(template, ended)]
                assert any(answer.status_code in (200, 307) for answer in answers), (template, name)


def test_no_route_speaks_of_another_team(
    app: FastAPI, client: TestClient, planted: dict[str, Planted]
) -> None:
    open_calls = [(method, path) for method, path in calls(app) if "{" not in path]
    assert len(open_calls) > 10
    for method, path in open_calls:
        if path in ("/sign-in", "/sign-out", "/webhooks/training"):
            continue  # these take no key
        for query in ("", "?limit=100", "?q=team", "?state=queued", f"?job={planted[THEIRS].failed.id}"):
            text = asked(client, method, path + query, path, MINE).text.replace(query[1:], "")
            assert not planted[THEIRS].shows_in(text), (method, path + query)


@pytest.mark.parametrize(
    "path",
    [
        "/exports",
        "/",
        "/models",
        "/deliveries",
        "/triggers",
        "/workers",
        "/pages/models",
        "/pages/deliveries",
        "/pages/triggers",
    ],
)
def test_a_team_sees_what_is_its_own(client: TestClient, planted: dict[str, Planted], path: str) -> None:
    own = client.get(path, headers=bearer(MINE)).text
    both = client.get(path, headers=bearer("everyone")).text
    assert [planted[team].shows_in(own) for team in (MINE, THEIRS)] == [True, False]
    assert [planted[team].shows_in(both) for team in (MINE, THEIRS)] == [True, True]


def test_a_team_does_with_its_own_what_it_may(client: TestClient, planted: dict[str, Planted]) -> None:
    mine = planted[MINE]
    headers = bearer(MINE)
    for path in (
        f"/exports/{mine.done.id}",
        f"/exports/{mine.done.id}/manifest",
        f"/exports/{mine.done.id}/towers/user/artifact",
        f"/exports/{mine.failed.id}/log",
        f"/exports/{mine.failed.id}/bundle?tower=user",
        f"/models/{mine.model}/latest",
        f"/models/{mine.model}/promoted",
        f"/deliveries/{mine.delivery}",
        f"/triggers/{mine.trigger}",
        f"/jobs/{mine.done.id}/report",
    ):
        assert client.get(path, headers=headers).status_code == 200, path
    assert client.post(f"/exports/{mine.queued.id}/cancel", headers=headers).status_code == 202
    assert client.post(f"/exports/{mine.running.id}/cancel", headers=headers).status_code == 202
    assert client.post(f"/exports/{mine.failed.id}/retry", headers=headers).status_code == 202


def test_another_team_s_job_stays_as_it_was(client: TestClient, planted: dict[str, Planted]) -> None:
    store = backend_of(client).stores.jobs.store
    for job in planted[THEIRS].jobs:
        before = store.get(job.id)
        for call in ("cancel", "retry"):
            client.post(f"/exports/{job.id}/{call}", headers=bearer(MINE))
            client.post(f"/jobs/{job.id}/{call}", headers=bearer(MINE))
        assert store.get(job.id) == before


def test_a_known_version_of_another_team_s_job_tells_nothing(
    client: TestClient, planted: dict[str, Planted]
) -> None:
    path = f"/exports/{planted[THEIRS].done.id}"
    tag = client.get(path, headers=bearer("everyone")).headers["etag"]
    for known in (tag, "*", f'W/{tag}, "x"'):
        answer = client.get(path, headers={**bearer(MINE), "If-None-Match": known})
        assert (answer.status_code, answer.headers.get("etag")) == (404, None)
    assert client.head(path, headers=bearer(MINE)).status_code == 404
    followed = client.get(f"{path}/events", headers={**bearer(MINE), "Last-Event-ID": "1"})
    assert followed.json()["code"] == "job_not_found"


def test_a_browser_s_cookie_is_the_same_caller(client: TestClient, planted: dict[str, Planted]) -> None:
    client.cookies.set("slipway_key", f"the-secret-of-{MINE}")
    assert client.get(f"/jobs/{planted[THEIRS].done.id}").status_code == 404
    assert client.get(f"/exports/{planted[THEIRS].running.id}/events").status_code == 404
    assert 'href="/jobs/' not in client.get(f"/?q={THEIRS}").text
    assert 'href="/jobs/' in client.get(f"/?q={MINE}").text


def test_metrics_need_a_key_that_sees_all(client: TestClient, planted: dict[str, Planted]) -> None:
    refused = client.get("/metrics", headers=bearer(MINE))
    assert (refused.status_code, refused.json()["code"]) == (403, "forbidden")
    assert "uris" in refused.json()["hint"]
    for name in ("everyone", "chief"):
        assert "slipway_jobs" in client.get("/metrics", headers=bearer(name)).text


def test_routes_have_the_jobs_of_their_caller_only() -> None:
    """A route that took the stores from elsewhere would show them whole."""
    routes = [*Path("service/routes").rglob("*.py"), *Path("service/dashboard").rglob("*.py")]
    taken = re.compile(r"\.store\b|state\.backend|state\.hooks|_backend\(")
    assert {path.name for path in routes if taken.search(path.read_text())} == set()
