"""HTTP to Redis to Celery to torchrun to packages on S3, every part real."""

import hashlib
from pathlib import Path

import httpx
import pytest

from cli.main import main
from exporter.artifact.read import read_manifest
from exporter.spec import ExportSpec, IdWeights, TowerName
from exporter.storage.open import open_store
from jobs.model import JobState
from launcher.up import running_stack
from service.client.watch import watch
from slipway.client import Client, JobView
from tests.e2e.conftest import FIXTURES
from tests.e2e.recorded import assert_as_recorded
from tests.exporter.models.recorded import recorded_batches

pytestmark = pytest.mark.slow


MODEL = "dssm"  # of two towers, and compiled sooner than one with attention


def upload_inputs(s3_uri: str) -> ExportSpec:
    """Put a recorded model and its rows where a training job would leave them."""
    store = open_store(s3_uri)
    names = {"pipeline.config": f"{MODEL}/pipeline.config"}
    names |= {name: f"data/rec/{name}" for name in ("items.parquet", "train.parquet")}
    checkpoint = FIXTURES / MODEL / "model.ckpt-11"
    names |= {
        str(path.relative_to(FIXTURES / MODEL)): str(path.relative_to(FIXTURES))
        for path in checkpoint.rglob("*")
        if path.is_file()
    }
    for key, path in names.items():
        store.put(FIXTURES / path, key)
    return ExportSpec(
        config_uri=f"{s3_uri}/pipeline.config",
        checkpoint_uri=f"{s3_uri}/model.ckpt-11",
        item_input_uri=f"{s3_uri}/items.parquet",
        sample_input_uri=f"{s3_uri}/train.parquet",
        output_uri=f"{s3_uri}/exports",
        max_batch_size=64,
        id_weights=IdWeights.IGNORE,  # as in what was recorded
    )


def test_a_posted_job_ends_with_two_packages_and_a_manifest(
    s3_uri: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spec = upload_inputs(s3_uri)
    seen: list[JobView] = []
    with running_stack(tmp_path / "stack") as stack:
        client = Client(stack.url)
        job = watch(client, client.submit(spec).id, seen.append)
        assert client.submit(spec).id == job.id  # the same export is answered with the one that was made
        places = {(part.tower, part.stage) for part in client.log(job.id).parts}
        link = httpx.get(f"{stack.url}/exports/{job.id}/towers/user/artifact")
        package = httpx.get(link.headers["location"]).content
    assert job.state is JobState.SUCCEEDED, job.failure or [tower.failure for tower in job.towers]
    assert [tower.name for tower in job.towers] == ["user", "item"]
    assert {tower.stage for view in seen for tower in view.towers} >= {"compile", "verify"}
    manifest = read_manifest(f"{spec.output_uri}/{job.id}")
    assert [tower.package.sha256 for tower in manifest.towers] == [tower.digest for tower in job.towers]
    assert any(tower is TowerName.USER for tower, _ in places), places
    assert hashlib.sha256(package).hexdigest() == job.towers[0].digest
    store = open_store(spec.output_uri)
    for tower in manifest.towers:
        assert store.sha256(f"{job.id}/{tower.package.path}") == tower.package.sha256
    for batch in (each for each in recorded_batches(MODEL) if each["batch"] in ("b7", "items_b7")):
        assert_as_recorded(f"{spec.output_uri}/{job.id}", MODEL, batch, tmp_path)
    assert main(["inspect", f"{spec.output_uri}/{job.id}"]) == 0
    assert job.id in capsys.readouterr().out
    assert list((tmp_path / "stack" / "work").iterdir()) == []
