"""`slipway diff`: what its two sides may be, and its command line."""

from pathlib import Path

import pytest

from cli import diff
from cli.main import main
from exporter.reports.comparison import Changes, Comparison
from exporter.reports.release_report import ReleasedArtifacts
from exporter.spec import TowerName
from jobs.control.releases import MemoryPointers
from jobs.ids import new_job_id
from jobs.lease.leases import claim
from jobs.model import Job
from jobs.stores.memory_store import MemoryJobStore
from service.dependencies import Backend
from tests.dashboard import diffs
from tests.jobs.factories import (
    CONFIG_TEXT,
    MINUTE,
    make_entry,
    make_failure,
    make_job,
    make_manifest,
    make_outcome,
)
from tests.service.conftest import backend, store, url

__all__ = ["backend", "store", "url"]


def publish(store: MemoryJobStore, root: Path, job: Job, **failed: object) -> Job:
    """End a job as one that has published below `root`; the towers in `failed` have failed."""
    job = job.model_copy(update={"model": "ranker"})
    store.add(job, CONFIG_TEXT)
    holding = claim(store, job.id, worker="w", length=MINUTE)
    assert holding is not None
    failures = {TowerName(name): make_failure() for name in failed}
    return holding.finish(make_outcome(failed=failures, root=str(root / job.id)))


@pytest.fixture
def compared(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """The sides that the command has made of its words, in place of their comparison."""
    sides: list[object] = []

    def compare(old: object, new: object, arguments: object) -> Comparison:
        sides.extend((old, new))
        return diffs.comparison()

    monkeypatch.setattr(diff, "_compare", compare)
    return sides


def test_folders_and_uris_are_taken_as_they_are(compared: list[object]) -> None:
    assert main(["diff", "exports/a", "s3://models/b/manifest.json", "--url", "http://127.0.0.1:1"]) == 0
    assert compared == ["exports/a", "s3://models/b/manifest.json"]


def test_a_folder_with_the_name_of_a_job_is_a_folder(
    compared: list[object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    name = new_job_id()
    (tmp_path / name).mkdir()
    assert main(["diff", name, "x", "--url", "http://127.0.0.1:1"]) == 0
    assert compared == [name, "x"]


def test_jobs_and_models_are_looked_up(
    compared: list[object], url: str, store: MemoryJobStore, backend: Backend, tmp_path: Path
) -> None:
    old, new = (publish(store, tmp_path, make_job()) for _ in range(2))
    assert isinstance(backend.pointers, MemoryPointers)
    backend.pointers.released["ranker"] = [old.id, new.id]
    assert main(["diff", old.id, "latest:ranker", "--url", url]) == 0
    expected = [
        ReleasedArtifacts(
            job_id=job.id,
            towers={TowerName.USER: f"{tmp_path}/{job.id}", TowerName.ITEM: f"{tmp_path}/{job.id}"},
        )
        for job in (old, new)
    ]
    assert compared == expected


def test_a_retry_is_compared_with_the_towers_that_it_kept(
    compared: list[object], url: str, store: MemoryJobStore, tmp_path: Path
) -> None:
    first = publish(store, tmp_path, make_job(), item=True)
    again = make_job().model_copy(update={"retry_of": first.id})
    kept = tuple(tower for tower in again.towers if tower.name is TowerName.ITEM)
    again = publish(store, tmp_path, again.model_copy(update={"towers": kept}))
    assert main(["diff", again.id, "x", "--url", url]) == 0
    assert compared[0] == ReleasedArtifacts(
        job_id=again.id,
        towers={TowerName.USER: f"{tmp_path}/{first.id}", TowerName.ITEM: f"{tmp_path}/{again.id}"},
    )


def test_a_job_that_has_published_nothing_is_refused(
    url: str, store: MemoryJobStore, capsys: pytest.CaptureFixture[str]
) -> None:
    job = make_job()
    store.add(job, CONFIG_TEXT)
    assert main(["diff", job.id, "x", "--url", url]) == 1
    assert f"error [invalid_spec]: job {job.id} has published nothing to compare" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("side", "code"),
    [("promoted:nobody", "model_not_found"), ("01jd6v7x4mzq3w8c5kftn2rbha", "job_not_found")],
)
def test_what_the_service_does_not_know_is_its_error(
    url: str, capsys: pytest.CaptureFixture[str], side: str, code: str
) -> None:
    assert main(["diff", side, "x", "--url", url]) == 1
    assert f"error [{code}]" in capsys.readouterr().err


DAMAGED = {
    "no JSON": ("{", "is not a manifest that this version reads: text: Invalid JSON"),
    "a list": ("[]", "is not a manifest that this version reads: text: Input should be an object"),
    "nothing": ("", "is not a manifest that this version reads: text: Invalid JSON"),
    "no towers": (make_manifest("old").model_dump_json(), "names no tower"),
    "a file elsewhere": (
        make_manifest("old", make_entry()).model_dump_json().replace("user/aoti/", "../../"),
        "could lie outside the artifact",
    ),
}


@pytest.mark.parametrize("damage", DAMAGED)
def test_a_damaged_manifest_is_one_error(
    damage: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text, problem = DAMAGED[damage]
    (tmp_path / "manifest.json").write_text(text)
    assert main(["diff", str(tmp_path), str(tmp_path)]) == 1
    captured = capsys.readouterr()
    assert "error [invalid_artifact]: " in captured.err and problem in captured.err and not captured.out


@pytest.mark.parametrize(
    ("side", "code"),
    [("no/such/folder", "invalid_artifact"), ("http://a/b", "invalid_spec"), ("promoted:", "invalid_spec")],
)
def test_a_side_that_leads_nowhere_is_one_error(
    side: str, code: str, url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["diff", side, "x", "--url", url]) == 1
    captured = capsys.readouterr()
    assert f"error [{code}]: " in captured.err and side in captured.err and not captured.out


def test_releases_without_a_tower_in_common_are_not_said_to_have_equal_configs(
    compared: list[object],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    towers = tuple(tower for tower in diffs.comparison().towers if tower.only_in)
    apart = diffs.comparison().model_copy(update={"towers": towers, "config": Changes()})
    monkeypatch.setattr(diff, "_compare", lambda *_: apart)
    assert main(["diff", "a", "b", "--html", str(tmp_path / "diff.html")]) == 0
    assert "no tower is in both releases" in capsys.readouterr().out
    assert "no tower is in both releases" in (tmp_path / "diff.html").read_text()


@pytest.mark.parametrize(
    ("option", "value"),
    [("--max-rows", "0"), ("--max-rows", "x"), ("--latency-seconds", "-1"), ("--latency-seconds", "nan")],
)
def test_a_number_that_means_nothing_is_refused(
    capsys: pytest.CaptureFixture[str], option: str, value: str
) -> None:
    assert main(["diff", "a", "b", f"{option}={value}"]) == 2
    assert f"argument {option}" in capsys.readouterr().err


def test_a_file_that_cannot_be_written_is_refused_before_the_work(
    compared: list[object], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    assert main(["diff", "a", "b", "--html", str(tmp_path / "file" / "diff.html")]) == 1
    assert compared == []
    assert "slipway: error [" in capsys.readouterr().err


def test_the_text_fits_a_screen_and_no_name_acts_on_the_terminal(
    compared: list[object], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    acting = diffs.comparison(many=200)
    old = acting.old.model_copy(update={"family": "dlrm\x1b[2J", "uri": "s3://m/a"})
    monkeypatch.setattr(diff, "_compare", lambda *_: acting.model_copy(update={"old": old}))
    assert main(["diff", "a", "b", "--exit-code"]) == 1
    out = capsys.readouterr().out
    assert "\x1b" not in out
    assert len(out.splitlines()) < 50
    assert "201 more" in out  # settings
