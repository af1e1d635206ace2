"""`slipway verify` without packages: signature, files and digests, in a store and through the service."""

import json
from pathlib import Path

import pytest

from cli.main import main
from jobs.ids import new_job_id
from jobs.stores.memory_store import MemoryJobStore
from tests.jobs.factories import CONFIG_TEXT
from tests.service.conftest import backend, store, url
from tests.service.test_download import keys_of, publish

__all__ = ["backend", "store", "url"]


@pytest.fixture
def artifact(store: MemoryJobStore, tmp_path: Path) -> Path:
    publish(store, str(tmp_path / "artifact"))
    return tmp_path / "artifact"


def test_a_whole_artifact_passes(artifact: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", str(artifact), "--files-only"]) == 0
    told = capsys.readouterr().out
    assert "files: 4 of" in told and "4 as published" in told and "signature: not signed" in told
    assert told.rstrip().endswith("who published it was not checked: --key")


def test_every_damaged_file_is_named(artifact: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (artifact / "item/pipeline.config").write_bytes(b"another")
    (artifact / "user/aoti/aoti_model.pt2").unlink()
    assert main(["verify", str(artifact)]) == 1
    told = capsys.readouterr().out
    assert "item/pipeline.config is damaged" in told and "user/aoti/aoti_model.pt2 is missing" in told
    assert "packages: not run, because files are damaged" in told and told.rstrip().endswith("FAILED")


def test_one_tower_is_verified_alone(artifact: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (artifact / "item/pipeline.config").write_bytes(b"another")
    assert main(["verify", str(artifact), "--tower", "user", "--files-only", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [each["path"] for each in found["files"]] == ["user/aoti/aoti_model.pt2", "user/pipeline.config"]
    assert (found["passed"], found["towers"], found["signature"]) == (True, None, "missing")


def test_the_signature_is_checked(
    store: MemoryJobStore, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    signing, public = keys_of(tmp_path)
    publish(store, str(tmp_path / "signed"), signing)
    command = ["verify", str(tmp_path / "signed"), "--files-only"]
    assert main(command) == 0
    assert "signed; --key KEY checks with which key" in capsys.readouterr().out
    assert main([*command, "--key", str(public)]) == 0
    assert "signed with the key" in capsys.readouterr().out
    (tmp_path / "signed/manifest.json").write_text(
        (tmp_path / "signed/manifest.json").read_text().replace("hstu", "hsut")
    )
    assert main([*command, "--key", str(public)]) == 1
    assert "error [signature_refused]" in capsys.readouterr().err


def test_what_a_job_published_is_fetched_and_verified(
    url: str, store: MemoryJobStore, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job = publish(store, str(tmp_path / "artifact"))
    assert main(["verify", job.id, "--files-only", "--url", url]) == 0
    assert f"artifact {job.id}" in capsys.readouterr().out
    (tmp_path / "artifact/item/pipeline.config").write_bytes(b"another")
    assert main(["verify", job.id, "--files-only", "--url", url]) == 1
    assert "item/pipeline.config is not the file in the manifest" in capsys.readouterr().err


def test_of_a_job_with_several_targets_one_is_named(
    url: str, store: MemoryJobStore, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    jobs = {name: publish(store, str(tmp_path / name)) for name in ("cpu", "avx2")}
    uris = {name: tmp_path / name / "manifest.json" for name in jobs}
    several = jobs["cpu"].spec.model_copy(update={"target": tuple(jobs), "output_uri": str(tmp_path)})
    given = {name: str(uri) for name, uri in uris.items()}
    made = jobs["cpu"].model_copy(update={"id": new_job_id(), "spec": several, "manifest_uris": given})
    for name, uri in uris.items():
        uri.write_text(uri.read_text().replace(jobs[name].id, made.id))
    store.add(made, CONFIG_TEXT)
    command = ["verify", made.id, "--files-only", "--url", url]
    assert main(command) == 1
    assert "an artifact for each of its targets: cpu, avx2" in capsys.readouterr().err
    assert main([*command, "--target", "avx2"]) == 0
    assert f"artifact {made.id}" in capsys.readouterr().out
    (tmp_path / "avx2/item/pipeline.config").write_bytes(b"another")
    assert main([*command, "--target", "cpu"]) == 0
    assert main([*command, "--target", "avx2"]) == 1
    assert main([*command, "--target", "sm_90"]) == 1


def test_a_uri_is_of_one_target(artifact: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", str(artifact), "--files-only", "--target", "cpu"]) == 1
    assert "--target goes with a job's id" in capsys.readouterr().err


def test_a_tower_that_is_not_there_is_said(artifact: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", str(artifact), "--tower", "model", "--files-only"]) == 1
    assert "has no model tower" in capsys.readouterr().err
