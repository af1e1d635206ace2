"""The pages of models: releases with their figures, who promoted what, and the forms that change it."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi import FastAPI
from starlette.testclient import TestClient

from jobs.control.releases import Release, Releases
from jobs.errors import ModelNotFound
from jobs.ids import JobId
from jobs.model import Job
from jobs.stores.memory_store import MemoryJobStore
from service.dependencies import Backend
from tests.dashboard.conftest import KEYS
from tests.dashboard.releases import MODEL, add_release, auc

PAGE = f"/pages/models/{MODEL}"
SAME_SITE = {"origin": "http://testserver", "sec-fetch-site": "same-origin"}


@pytest.fixture
def releases(store: MemoryJobStore, backend: Backend) -> Releases:
    return Releases(store, backend.pointers)


@pytest.fixture
def made(store: MemoryJobStore, backend: Backend, tmp_path: Path) -> list[Job]:
    """Three releases, the newest first; the newest is not blessed."""
    reports = {3: auc(0.72), 2: auc(0.71), 1: auc(0.69)}
    return [
        add_release(store, backend.pointers, tmp_path, minutes=10 * age, scale=4 - age, report=report)
        for age, report in reports.items()
    ][::-1]


@pytest.fixture
def keyed(guarded: FastAPI) -> Iterator[TestClient]:
    with TestClient(guarded, raise_server_exceptions=False, follow_redirects=False) as client:
        yield client


def bearer(name: str) -> dict[str, str]:
    return {"authorization": f"Bearer {KEYS[name]}"}


def text_of(client: TestClient, path: str = PAGE, **headers: str) -> str:
    answer = client.get(path, headers=headers)
    assert answer.status_code == 200, answer.text
    return " ".join(answer.text.split())


def test_models_are_listed_with_what_is_promoted(
    client: TestClient, made: list[Job], releases: Releases
) -> None:
    releases.promote(MODEL, made[1].id, by="ann")
    text = text_of(client, "/pages/models")
    assert f'href="{PAGE}"' in text and "hstu_match" in text
    assert "by <strong>ann</strong>" in text
    assert text.index(made[1].id) < text.index(made[0].id)  # the promoted one, then the latest
    assert "not blessed" in text


def test_without_models_the_page_says_how_to_get_one(client: TestClient) -> None:
    assert "slipway submit --model ranker" in text_of(client, "/pages/models")


def test_models_go_on_on_the_next_page(
    client: TestClient, store: MemoryJobStore, backend: Backend, tmp_path: Path
) -> None:
    for number in range(51):
        add_release(store, backend.pointers, tmp_path, model=f"model-{number:02}")
    first = text_of(client, "/pages/models")
    assert "model-49" in first and "model-50" not in first
    [more] = re.findall(r'href="([^"]+)" rel="next"', first)
    assert "model-50" in text_of(client, more)


def test_a_model_lists_its_releases_newest_first(client: TestClient, made: list[Job]) -> None:
    text = text_of(client)
    places = [text.index(f'id="release-{job.id}"') for job in made]
    assert places == sorted(places)
    assert "no release is promoted" in text and "No promotion is on record" in text
    assert "auc of ctr failed" in text  # what stands against the newest
    assert "team: ads" in text


def test_a_release_is_promoted_and_rolled_back_by_forms(
    client: TestClient, made: list[Job], releases: Releases
) -> None:
    for job in made[:0:-1]:
        answer = client.post(f"{PAGE}/promote", data={"job_id": job.id}, follow_redirects=False)
        assert (answer.status_code, answer.headers["location"]) == (303, PAGE)
    assert releases.get_promoted(MODEL).job_id == made[1].id
    text = text_of(client)
    assert f'name="from" value="{made[1].id}"' in text and f"Roll back to …{made[2].id[-8:]}" in text
    assert client.post(f"{PAGE}/roll-back", data={"from": made[1].id}).status_code == 200
    assert releases.get_promoted(MODEL).job_id == made[2].id
    shown = text_of(client)
    assert shown.count("by <strong>anyone</strong>") == 4  # in the heading, and three times in the history
    assert "rolled back" in shown


def test_a_form_of_an_older_page_rolls_nothing_back(
    client: TestClient, made: list[Job], releases: Releases
) -> None:
    for job in made[1:]:
        releases.promote(MODEL, job.id)
    answer = client.post(f"{PAGE}/roll-back", data={"from": made[1].id})
    assert releases.get_promoted(MODEL).job_id == made[2].id
    assert "Nothing was rolled back" in answer.text


def test_a_promotion_while_the_form_is_read_stays(
    client: TestClient, made: list[Job], releases: Releases, monkeypatch: pytest.MonkeyPatch
) -> None:
    for job in made[:0:-1]:
        releases.promote(MODEL, job.id)
    roll_back = Releases.roll_back

    def promoted_before(self: Releases, model: str, by: str, *, expected: JobId) -> Release:
        releases.promote(MODEL, made[2].id)
        return roll_back(self, model, by, expected=expected)

    monkeypatch.setattr(Releases, "roll_back", promoted_before)
    answer = client.post(f"{PAGE}/roll-back", data={"from": made[1].id})
    assert releases.get_promoted(MODEL).job_id == made[2].id
    assert "Nothing was rolled back" in answer.text


def test_a_release_that_is_not_blessed_is_promoted_by_force_only(
    client: TestClient, made: list[Job], releases: Releases
) -> None:
    text = text_of(client)
    assert text.count("Promote it by force") == 1 and text.count("Promote this release") == 2
    refused = client.post(f"{PAGE}/promote", data={"job_id": made[0].id})
    assert (refused.status_code, "release_not_blessed" in refused.text) == (409, True)
    with pytest.raises(ModelNotFound):
        releases.get_promoted(MODEL)
    assert client.post(f"{PAGE}/promote", data={"job_id": made[0].id, "force": "yes"}).status_code == 200
    assert "by force" in text_of(client)


@pytest.mark.parametrize("form", [{}, {"job_id": "x"}, {"job_id": "0" * 26}])
def test_a_form_without_a_release_is_refused(
    client: TestClient, made: list[Job], form: dict[str, str]
) -> None:
    answer = client.post(f"{PAGE}/promote", data=form)
    assert answer.status_code in (404, 422)
    assert answer.headers["content-type"].startswith("text/html")


@pytest.mark.parametrize("call", ["promote", "roll-back"])
def test_only_an_admin_is_offered_the_forms_and_may_send_them(
    keyed: TestClient, made: list[Job], releases: Releases, call: str
) -> None:
    for job in made[1:]:
        releases.promote(MODEL, job.id)
    form = {"job_id": made[1].id, "from": made[2].id}
    for name in ("watcher", "trainer"):
        shown = text_of(keyed, PAGE, **bearer(name))
        assert f"{PAGE}/promote" not in shown and f"{PAGE}/roll-back" not in shown
        refused = keyed.post(f"{PAGE}/{call}", data=form, headers=bearer(name))
        assert (refused.status_code, "forbidden" in refused.text) == (403, True)
    assert releases.get_promoted(MODEL).job_id == made[2].id
    assert f"{PAGE}/{call}" in text_of(keyed, PAGE, **bearer("releaser"))
    assert keyed.post(f"{PAGE}/{call}", data=form, headers=bearer("releaser")).status_code == 303
    assert releases.get_promoted(MODEL).job_id == made[1].id
    assert releases.promotions(MODEL)[0].by == "releaser"


@pytest.mark.parametrize("call", ["promote", "roll-back"])
@pytest.mark.parametrize(
    "headers", [{"origin": "http://elsewhere.example"}, {"sec-fetch-site": "cross-site"}, {"origin": "null"}]
)
def test_another_site_changes_nothing(
    client: TestClient, made: list[Job], releases: Releases, call: str, headers: dict[str, str]
) -> None:
    for job in made[:0:-1]:
        releases.promote(MODEL, job.id)
    form = {"job_id": made[2].id, "from": made[1].id}
    assert client.post(f"{PAGE}/{call}", data=form, headers=headers).status_code == 403
    assert releases.get_promoted(MODEL).job_id == made[1].id
    assert client.post(f"{PAGE}/{call}", data=form, headers=SAME_SITE).status_code == 200
    assert releases.get_promoted(MODEL).job_id == made[2].id


def test_figures_of_releases_are_plotted_and_listed(
    client: TestClient, made: list[Job], releases: Releases
) -> None:
    releases.promote(MODEL, made[1].id)
    text = text_of(client, f"{PAGE}/figures")
    for title in (
        "Release gate: auc",
        "ndcg@10",
        "Time per call",
        "Size of the packages",
        "Difference from eager",
    ):
        assert f">{title}" in text or f": {title}<" in text, title
    assert text.count('<svg class="plot"') == 5
    assert text.count('class="marked"') == 5  # the promoted release
    for figure in ("0.72, passed", "0.69, failed", "8.37 MB", "for 512 rows", "8.9e-08"):
        assert figure in text, figure
    newest, oldest = (text.rindex(f'href="/jobs/{job.id}"') for job in (made[0], made[2]))
    assert newest < oldest


def test_figures_without_manifests_are_still_of_use(
    client: TestClient, made: list[Job], store: MemoryJobStore
) -> None:
    for job in made[:2]:
        Path(job.manifest_uri or "").unlink()
    text = text_of(client, f"{PAGE}/figures")
    assert "2 manifests cannot be read now" in text
    assert "Size of the packages" in text and text.count("ms for 512 rows") == 2  # a point and a cell


def test_a_promoted_release_is_shown_however_old(
    client: TestClient, store: MemoryJobStore, backend: Backend, releases: Releases, tmp_path: Path
) -> None:
    jobs = [add_release(store, backend.pointers, tmp_path, minutes=60 - at) for at in range(22)]
    releases.promote(MODEL, jobs[0].id)
    text = text_of(client)
    assert f"release-{jobs[0].id}" in text and f"release-{jobs[1].id}" not in text


def test_a_model_that_is_not_there_is_a_page(client: TestClient) -> None:
    for path in ("/pages/models/none", "/pages/models/none/figures", "/pages/models/%2e%2e"):
        answer = client.get(path)
        assert answer.status_code in (404, 422)
    assert "model_not_found" in client.get("/pages/models/none").text


def test_a_page_of_a_model_that_has_not_changed_is_not_sent_again(
    client: TestClient, made: list[Job]
) -> None:
    for path in ("/pages/models", PAGE, f"{PAGE}/figures"):
        tag = client.get(path).headers["etag"]
        assert client.get(path, headers={"If-None-Match": tag}).status_code == 304
