"""The texts of the pages, and the escaping of what they show."""

import re
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from exporter.spec import Device, TowerName
from exporter.stages import Stage
from jobs.diagnostics.logs import LogPart
from jobs.fleet.roster import WorkerNotice
from jobs.model import Job, JobState
from jobs.stores.memory_store import MemoryJobStore
from service.app import create_app
from service.dependencies import Backend
from service.settings import ServiceSettings
from tests.dashboard import sample
from tests.jobs.factories import MINUTE, NOW

JOB_PAGES = ["plan", "report", "diff", "log", "files", "config", "rerun"]
PAGES = ["/", "/workers", "/jobs/{id}", *(f"/jobs/{{id}}/{page}" for page in JOB_PAGES)]


@pytest.fixture
def running(store: MemoryJobStore) -> Job:
    towers = (
        sample.at_work(TowerName.USER, Stage.COMPILE, 0.62, "38 of 61 files compiled"),
        sample.at_work(TowerName.ITEM, Stage.TRACE, None, ""),
    )
    job = sample.job(JobState.RUNNING, *towers)
    store.add(job, sample.CONFIG_TEXT)
    return job


@pytest.mark.parametrize("path", PAGES)
def test_a_page_takes_scripts_and_styles_from_itself_alone(
    client: TestClient, running: Job, path: str
) -> None:
    answer = client.get(path.format(id=running.id))
    assert answer.status_code == 200, answer.text
    policy = answer.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self'")
    assert "unsafe" not in policy
    assert (
        re.findall(r"<script(?! type=\"module\" src=\"/static/)|<style|\son\w+=|\sstyle=", answer.text) == []
    )


@pytest.mark.parametrize("path", PAGES)
def test_what_a_page_is_drawn_with_is_there(client: TestClient, running: Job, path: str) -> None:
    addresses = re.findall(r'(?:src|href)="(/static/[^"]+)"', client.get(path.format(id=running.id)).text)
    assert {"/static/live.js", "/static/style.css", "/static/icon.svg"} == set(addresses)
    assert {client.get(address).status_code for address in addresses} == {200}


@pytest.mark.parametrize("path", PAGES)
def test_nothing_comes_from_elsewhere(client: TestClient, running: Job, path: str) -> None:
    assert "://" not in re.sub(r"s3://\w+", "", client.get(path.format(id=running.id)).text)


def test_what_callers_write_is_no_markup(client: TestClient, store: MemoryJobStore) -> None:
    job = sample.failed(sample.NASTY)
    job = job.model_copy(
        update={"spec": job.spec.model_copy(update={"checkpoint_uri": f"s3://m/{sample.NASTY}"})}
    )
    store.add(job, sample.CONFIG_TEXT)
    for page in ("/", f"/jobs/{job.id}", f"/?q={sample.NASTY}"):
        text = client.get(page).text
        assert "<script>alert" not in text
        assert "&lt;script&gt;" in text


def test_the_list_tells_towers_stages_and_failures(
    client: TestClient, store: MemoryJobStore, running: Job
) -> None:
    store.add(sample.partial(), sample.CONFIG_TEXT)
    text = client.get("/").text
    assert "hstu_match/model.ckpt-1100" in text
    assert 'aria-label="user tower, compile"' in text
    assert "dims_conflict" in text


def test_a_state_narrows_the_list(client: TestClient, store: MemoryJobStore, running: Job) -> None:
    failed = sample.failed("it broke")
    store.add(failed, sample.CONFIG_TEXT)
    text = client.get("/", params={"state": "failed"}).text
    assert failed.id in text and running.id not in text


@pytest.mark.parametrize("words", ["dssm_v2", "CKPT-98000 dims", "{id}"])
def test_a_search_finds_what_a_job_names(
    client: TestClient, store: MemoryJobStore, running: Job, words: str
) -> None:
    job = sample.partial()
    store.add(job, sample.CONFIG_TEXT)
    text = client.get("/", params={"q": words.format(id=job.id)}).text
    assert job.id in text and running.id not in text


def test_a_search_that_finds_nothing_says_so(client: TestClient, running: Job) -> None:
    assert "mentions “nowhere”" in client.get("/", params={"q": "nowhere"}).text


def test_older_jobs_are_a_page_away(client: TestClient, store: MemoryJobStore) -> None:
    jobs = sorted((sample.job(JobState.QUEUED) for _ in range(52)), key=lambda job: job.id)
    for job in jobs:
        store.add(job, sample.CONFIG_TEXT)
    first = client.get("/").text
    assert jobs[0].id not in first
    (older,) = re.findall(r'<a href="([^"]+)" rel="next"', first)
    assert jobs[0].id in client.get(older).text


def test_a_list_without_jobs_says_how_to_get_one(client: TestClient) -> None:
    assert "slipway submit" in client.get("/").text


def test_a_page_that_has_not_changed_is_not_sent_again(
    client: TestClient, store: MemoryJobStore, running: Job
) -> None:
    page = f"/jobs/{running.id}"
    tag = client.get(page).headers["etag"]
    assert client.get(page, headers={"If-None-Match": tag}).status_code == 304
    cancelled = running.model_copy(update={"cancel_requested": True, "revision": 2})
    assert store.replace(running, cancelled)
    assert "Cancelling" in client.get(page, headers={"If-None-Match": tag}).text


def test_a_failure_shows_what_to_do(client: TestClient, store: MemoryJobStore) -> None:
    job = sample.failed("sizes disagree")
    store.add(job, sample.CONFIG_TEXT)
    text = client.get(f"/jobs/{job.id}").text
    for said in (
        "dims_conflict",
        "sizes disagree",
        "pipeline.config:41",
        "in one sequence_feature",
        "hstu.py:212",
        'href="/exports/x/bundle?tower=model"',
    ):
        assert said in text


def test_the_report_plots_errors_and_times(client: TestClient, store: MemoryJobStore, tmp_path: Path) -> None:
    job = sample.published(tmp_path)
    store.add(job, sample.CONFIG_TEXT)
    text = client.get(f"/jobs/{job.id}/report").text
    assert text.count('<svg class="plot"') == 3  # the item tower was timed at one size
    assert "batch_512, batch 512: 2e-06" in text
    assert "3.4 × faster" in text


def test_the_report_says_what_was_made_of_the_items(
    client: TestClient, store: MemoryJobStore, tmp_path: Path
) -> None:
    job = sample.published(tmp_path)
    store.add(job, sample.CONFIG_TEXT)
    text = client.get(f"/jobs/{job.id}/report").text
    assert text.count("Item vectors") == 1
    assert "10,000,000 of width 32" in text and "recall@10 0.958" in text


def test_the_report_tells_what_lower_precision_costs(
    client: TestClient, store: MemoryJobStore, tmp_path: Path
) -> None:
    job = sample.published(tmp_path)
    store.add(job, sample.CONFIG_TEXT)
    text = client.get(f"/jobs/{job.id}/report").text
    assert "Computed in bf16 by autocast" in text and text.count("tables quantised") == 1
    assert "360 MB instead of 2.56 GB" in text and "0.066" in text
    assert "allowed 0.54 of an output" in text and "0.081" in text


def test_the_report_shows_every_target_and_lets_one_be_chosen(
    client: TestClient, store: MemoryJobStore, tmp_path: Path
) -> None:
    job = sample.published(tmp_path)
    spec = job.spec.model_copy(update={"target": ("avx2", "avx512")})
    job = job.model_copy(update={"spec": spec, "manifest_uris": {"avx512": job.manifest_uri}})
    store.add(job, sample.CONFIG_TEXT)
    text = client.get(f"/jobs/{job.id}/report").text
    assert "user (avx512)" in text and "Nothing is published" in text
    assert f'href="/jobs/{job.id}/report?target=avx2"' in text
    only = client.get(f"/jobs/{job.id}/report?target=avx2").text
    assert "user (avx512)" not in only and 'report?target=avx2" aria-current="page"' in only
    assert "Manifest (avx512)" in client.get(f"/jobs/{job.id}").text


def test_a_manifest_that_is_gone_is_said_to_be(
    client: TestClient, store: MemoryJobStore, tmp_path: Path
) -> None:
    job = sample.partial().model_copy(update={"manifest_uri": str(tmp_path / "none" / "manifest.json")})
    store.add(job, sample.CONFIG_TEXT)
    assert "cannot be read" in client.get(f"/jobs/{job.id}/report").text


def test_the_plan_names_what_varies_together(client: TestClient, running: Job) -> None:
    text = client.get(f"/jobs/{running.id}/plan").text
    assert "seq_uih_seq" in text and "shared by 4 inputs" in text


def test_workers_and_queue(client: TestClient, backend: Backend, store: MemoryJobStore, running: Job) -> None:
    notice = WorkerNotice(
        id="w",
        host="gpu-7",
        pid=1,
        device=Device.CUDA,
        versions={"torch": "2"},
        started_at=NOW,
        jobs=(running.id,),
    )
    backend.roster.announce(notice, MINUTE)
    waiting = sample.job(JobState.QUEUED)
    store.add(waiting, sample.CONFIG_TEXT)
    text = client.get("/workers").text
    assert "gpu-7" in text and running.id in text and f"queued-{waiting.id}" in text


def test_no_worker_is_worth_a_word(client: TestClient) -> None:
    assert "No worker is alive" in client.get("/workers").text


def test_a_button_cancels_a_job(client: TestClient, store: MemoryJobStore) -> None:
    job = sample.job(JobState.QUEUED)
    store.add(job, sample.CONFIG_TEXT)
    answer = client.post(f"/jobs/{job.id}/cancel", follow_redirects=False)
    assert (answer.status_code, answer.headers["location"]) == (303, f"/jobs/{job.id}")
    assert store.get(job.id).state is JobState.CANCELLED


def test_a_button_runs_the_failed_towers_again(client: TestClient, store: MemoryJobStore) -> None:
    job = sample.partial(code="tower_died")
    store.add(job, sample.CONFIG_TEXT)
    assert "Retry the failed towers" in client.get(f"/jobs/{job.id}").text
    shown = client.post(f"/jobs/{job.id}/retry")
    assert shown.status_code == 200
    assert 'id="tower-item"' in shown.text and 'id="tower-user"' not in shown.text
    assert f'href="/jobs/{job.id}"' in shown.text


@pytest.mark.parametrize("state", [JobState.QUEUED, JobState.CANCELLED, JobState.SUCCEEDED])
def test_what_has_not_failed_has_no_button_to_retry_it(
    client: TestClient, store: MemoryJobStore, state: JobState
) -> None:
    job = sample.job(state)
    store.add(job, sample.CONFIG_TEXT)
    assert "/retry" not in client.get(f"/jobs/{job.id}").text
    assert client.post(f"/jobs/{job.id}/retry").status_code == 409


def test_the_log_is_shown_by_tower_and_stage(client: TestClient, backend: Backend, running: Job) -> None:
    parts = [
        LogPart(lines=("begun",)),
        LogPart(tower=TowerName.USER, stage=Stage.COMPILE, lines=("one", sample.NASTY)),
    ]
    backend.logs.append(running.id, parts)
    text = client.get(f"/jobs/{running.id}/log").text
    assert "user tower, compile" in text and "2 lines" in text and "begun" in text
    assert sample.NASTY not in text


@pytest.mark.parametrize(
    "headers", [{"origin": "http://elsewhere.example"}, {"sec-fetch-site": "cross-site"}, {"origin": "null"}]
)
def test_another_site_cannot_press_the_button(
    client: TestClient, store: MemoryJobStore, headers: dict[str, str]
) -> None:
    job = sample.job(JobState.QUEUED)
    store.add(job, sample.CONFIG_TEXT)
    answer = client.post(f"/jobs/{job.id}/cancel", headers=headers)
    assert (answer.status_code, store.get(job.id).state) == (403, JobState.QUEUED)


@pytest.mark.parametrize(
    ("path", "status", "code"),
    [
        ("/jobs/nonsense", 404, "job_not_found"),
        ("/?state=lost", 422, "invalid_request"),
        ("/?before=x", 422, "invalid_request"),
    ],
)
def test_an_error_is_a_page_too(client: TestClient, path: str, status: int, code: str) -> None:
    answer = client.get(path)
    assert answer.status_code == status
    assert answer.headers["content-type"].startswith("text/html")
    assert code in answer.text and "content-security-policy" in answer.headers


def test_the_pages_are_no_part_of_the_api(client: TestClient) -> None:
    paths = client.get("/openapi.json").json()["paths"]
    assert not {"/", "/workers", "/jobs/{job_id}"} & paths.keys()
    assert client.get("/exports").headers["content-type"] == "application/json"
    assert client.get("/nowhere").headers["content-type"] == "application/problem+json"


def test_a_store_that_is_away_is_a_page_too() -> None:
    with TestClient(create_app(ServiceSettings(redis_url="redis://127.0.0.1:1/0"))) as stranded:
        answer = stranded.get("/")
    assert answer.status_code == 503
    assert "store_unavailable" in answer.text
