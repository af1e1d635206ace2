"""Published packages, manifests and releases over HTTP, and the metrics."""

import urllib.request
from datetime import timedelta
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families
from starlette.testclient import TestClient

from exporter.manifest import Manifest, Versions
from exporter.spec import Device, Mode
from exporter.storage.open import open_store
from jobs.control.releases import MemoryPointers
from jobs.fleet.roster import Gpu, WorkerNotice
from jobs.fleet.tallies import count_attempt
from jobs.lease.leases import claim, update_job
from jobs.model import Job, JobState
from jobs.stores.memory_store import MemoryJobStore
from service.app import create_app
from service.dependencies import Backend
from service.settings import ServiceSettings
from tests.jobs.factories import CONFIG_TEXT, MINUTE, NOW, make_entry, make_job, make_outcome

VERSIONS = Versions(slipway="1", python="3", torch="2", torchrec="1", fbgemm="1", triton="3", cuda=None)


def make_manifest(job: Job) -> Manifest:
    return Manifest(
        job_id=job.id,
        created_at="2026-01-02T03:04:05Z",
        family="hstu_match",
        mode=Mode.UNIFIED,
        device=Device.CPU,
        architecture="x86_64",
        max_batch_size=512,
        versions=VERSIONS,
        op_libraries=(),
        sources=(),
        towers=(make_entry(),),
    )


def publish(store: MemoryJobStore, root: str) -> Job:
    """A finished job whose packages are named below `root`."""
    job = make_job()
    spec = job.spec.model_copy(update={"output_uri": root})
    job = job.model_copy(update={"model": "ranker", "spec": spec})
    store.add(job, CONFIG_TEXT)
    holding = claim(store, job.id, worker="w", length=MINUTE)
    assert holding is not None
    outcome = make_outcome()
    towers = tuple(
        each.model_copy(update={"package_uri": f"{root}/{each.tower}.pt2"}) for each in outcome.towers
    )
    named = {"towers": towers, "manifest_uri": f"{root}/manifest.json"}
    return holding.finish(outcome.model_copy(update=named))


@pytest.fixture
def published(store: MemoryJobStore, tmp_path: Path) -> Job:
    job = publish(store, str(tmp_path))
    (tmp_path / "user.pt2").write_bytes(b"package" * 1000)
    (tmp_path / "manifest.json").write_text(make_manifest(job).model_dump_json())
    return job


def test_a_package_is_streamed_from_a_folder(client: TestClient, published: Job) -> None:
    answer = client.get(f"/exports/{published.id}/towers/user/artifact")
    assert (answer.status_code, answer.content) == (200, b"package" * 1000)
    assert answer.headers["ETag"] == f'"{published.towers[0].digest}"'


def test_a_link_leads_where_callers_reach_the_store(
    backend: Backend, store: MemoryJobStore, s3_uri: str, s3_endpoint: str
) -> None:
    """The API reaches the store under another name; the signature is for the name in the link."""
    open_store(s3_uri).put_bytes(b"package", "user.pt2")
    public = s3_endpoint.replace("127.0.0.1", "localhost")
    job = publish(store, s3_uri)
    with TestClient(create_app(ServiceSettings(link_endpoint=public), backend)) as outside:
        answer = outside.get(f"/exports/{job.id}/towers/user/artifact", follow_redirects=False)
    assert answer.headers["Location"].startswith(f"{public}/bucket-")
    with urllib.request.urlopen(answer.headers["Location"]) as file:
        assert file.read() == b"package"


def test_a_package_in_a_bucket_is_a_link(client: TestClient, store: MemoryJobStore, s3_uri: str) -> None:
    open_store(s3_uri).put_bytes(b"package", "user.pt2")
    job = publish(store, s3_uri)
    answer = client.get(f"/exports/{job.id}/towers/user/artifact", follow_redirects=False)
    assert answer.status_code == 307
    with urllib.request.urlopen(answer.headers["Location"]) as file:
        assert file.read() == b"package"


@pytest.mark.parametrize("name", ["user.pt2", "manifest.json", "diff.json"])
def test_a_link_in_the_artifact_shows_no_other_file(
    client: TestClient, published: Job, tmp_path: Path, name: str
) -> None:
    """Whoever may write to the folder could otherwise read whatever the API can read."""
    secret = tmp_path.with_name(f"{tmp_path.name}-secret")
    (tmp_path / "diff.json").write_text("{}")
    (tmp_path / name).rename(secret)
    (tmp_path / name).symlink_to(secret)
    path = {"manifest.json": "manifest", "diff.json": "diff"}.get(name, "towers/user/artifact")
    answer = client.get(f"/exports/{published.id}/{path}")
    assert (answer.status_code, answer.json()["code"]) == (403, "uri_not_allowed")


def test_a_package_that_lies_outside_of_the_output_is_not_served(
    client: TestClient, store: MemoryJobStore, published: Job, tmp_path: Path
) -> None:
    """An attempt reports where its packages lie, and runs the code of families."""
    secret = tmp_path.with_name(f"{tmp_path.name}-secret")
    secret.write_bytes(b"secret")
    towers = tuple(each.model_copy(update={"package_uri": str(secret)}) for each in published.towers)
    update_job(store, published.id, lambda job, now: job.model_copy(update={"towers": towers}))
    answer = client.get(f"/exports/{published.id}/towers/user/artifact")
    assert (answer.status_code, answer.json()["code"]) == (403, "uri_not_allowed")


@pytest.mark.parametrize("path", ["towers/item/artifact", "towers/model/artifact"])
def test_what_is_not_there_is_no_artifact(client: TestClient, published: Job, path: str) -> None:
    answer = client.get(f"/exports/{published.id}/{path}")
    assert (answer.status_code, answer.json()["code"]) == (404, "no_artifact")


def test_a_manifest_is_shown(client: TestClient, published: Job) -> None:
    answer = client.get(f"/exports/{published.id}/manifest")
    assert Manifest.model_validate(answer.json()) == make_manifest(published)


def test_an_unfinished_job_has_no_manifest(client: TestClient, store: MemoryJobStore) -> None:
    job = make_job()
    store.add(job, CONFIG_TEXT)
    answer = client.get(f"/exports/{job.id}/manifest")
    assert (answer.status_code, answer.json()["code"]) == (404, "no_artifact")


def test_a_model_is_promoted_and_rolled_back(
    client: TestClient, store: MemoryJobStore, backend: Backend, tmp_path: Path
) -> None:
    jobs = [publish(store, str(tmp_path / str(number))) for number in range(2)]
    assert isinstance(backend.pointers, MemoryPointers)
    backend.pointers.released["ranker"] = [job.id for job in jobs]
    newest = max(job.id for job in jobs)
    oldest = min(job.id for job in jobs)
    assert client.get("/models").json() == {"models": ["ranker"], "next_cursor": None}
    assert client.get("/models/ranker/latest").json()["job_id"] == newest
    assert client.get("/models/ranker/promoted").json()["code"] == "model_not_found"
    assert client.post("/models/ranker/promote", json={"job_id": oldest}).json()["job_id"] == oldest
    assert client.post("/models/ranker/promote", json={"job_id": None}).json()["job_id"] == newest
    assert client.post("/models/ranker/roll-back").json()["job_id"] == oldest
    assert client.get("/models/ranker/promoted").json()["towers"][0]["name"] == "user"


def test_an_unknown_model_is_not_found(client: TestClient) -> None:
    assert client.get("/models/nobody/latest").json()["code"] == "model_not_found"


def test_the_metrics_say_how_it_goes(client: TestClient, store: MemoryJobStore, backend: Backend) -> None:
    waiting = make_job()
    store.add(waiting, CONFIG_TEXT)
    job = make_job(JobState.SUCCEEDED)
    user = job.towers[0].model_copy(update={"stage_seconds": {"trace": 4.0, "compile": 7.0}, "code": "cold"})
    backend.tallies.add(count_attempt(job.model_copy(update={"towers": (user,)})))
    notice = WorkerNotice(id="w", host="h", pid=1, device=Device.CPU, versions={}, started_at=NOW, jobs=())
    gpu = Gpu(index=0, name="H200", memory_total=150 << 30, memory_used=6 << 30, busy=0.25)
    for worker in ("w", "other on the same machine"):
        told = notice.model_copy(update={"id": worker, "gpus": (gpu,)})
        backend.roster.announce(told, timedelta(minutes=1))
    samples = {
        " ".join([sample.name, *sorted(sample.labels.values())]): sample.value
        for family in text_string_to_metric_families(client.get("/metrics").text)
        for sample in family.samples
    }
    assert samples["slipway_jobs queued"] == 1
    assert samples["slipway_queue_age_seconds"] > 0
    assert (samples["slipway_workers cpu"], samples["slipway_workers_busy cpu"]) == (2, 0)
    assert samples["slipway_attempts_total succeeded"] == 1
    assert samples["slipway_stage_seconds_sum cpu trace unified user"] == 4.0
    assert samples["slipway_stage_seconds_bucket 5.0 cpu trace unified user"] == 1
    assert samples["slipway_stage_seconds_bucket 2.0 cpu trace unified user"] == 0
    assert samples["slipway_tower_seconds_sum cpu true unified user"] == 11.0
    assert samples["slipway_tower_seconds_bucket 10.0 cpu true unified user"] == 0
    assert samples["slipway_gpu_memory_used_bytes 0 H200 h"] == 6 << 30
    assert samples["slipway_gpu_busy_ratio 0 H200 h"] == 0.25
