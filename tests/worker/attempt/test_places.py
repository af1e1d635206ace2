"""An attempt judges by the rules of the key behind its job, on its own disk, before it reads or writes."""

from functools import partial
from pathlib import Path

import pytest

from exporter.artifact.upload import remove_unfinished_artifact
from exporter.attempt.attempt import Attempt
from exporter.distributed.ranks import Ranks
from exporter.errors import UriNotAllowed
from exporter.spec import ExportSpec
from exporter.storage.uris import NamedUri, UriRules
from jobs.model import Job
from tests.exporter.stage_events import ignore_stages
from tests.jobs.factories import CONFIG_TEXT, make_job
from worker.attempt.rank import run_export
from worker.attempt.workspace import artifact_uri_of, open_output_of, places_of
from worker.settings import AttemptSettings


@pytest.fixture
def roots(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Roots with the folders of two teams."""
    for name in ("team/in", "team/out", "other"):
        (tmp_path / "roots" / name).mkdir(parents=True)
    monkeypatch.setenv("SLIPWAY_FILE_ROOTS", str(tmp_path / "roots"))
    return tmp_path / "roots"


@pytest.fixture
def rules(roots: Path) -> UriRules:
    return UriRules(inputs=(str(roots / "team"),), outputs=(str(roots / "team"),))


def failure_of(roots: Path, rules: UriRules, tmp_path: Path) -> tuple[str, str]:
    """Run an attempt, and return the code and the field of its failure."""
    spec = ExportSpec(
        config=CONFIG_TEXT, checkpoint_uri=str(roots / "team" / "in"), output_uri=str(roots / "team" / "out")
    )
    attempt = Attempt(job_id="job", spec=spec, workspace=tmp_path, places=places_of(rules))
    outcome = run_export(attempt, AttemptSettings(), Ranks(), ignore_stages)
    assert outcome is not None and outcome.failure is not None
    return outcome.failure.code, outcome.failure.where


def test_an_allowed_job_gets_past_the_judge(roots: Path, rules: UriRules, tmp_path: Path) -> None:
    assert failure_of(roots, rules, tmp_path)[0] == "invalid_pipeline_config"


@pytest.mark.parametrize("target", ["other", "..", "loop"])
def test_an_output_that_is_a_link_out_by_now_is_refused(
    roots: Path, rules: UriRules, tmp_path: Path, target: str
) -> None:
    """The link leads to another team's folder, so the roots alone would allow it."""
    (roots / "team" / "out").rmdir()
    (roots / "team" / "out").symlink_to("out" if target == "loop" else roots / target)
    code, where = failure_of(roots, rules, tmp_path)
    assert code == ("storage_error" if target == "loop" else "uri_not_allowed"), where


def test_a_link_in_a_checkpoint_to_another_s_folder_is_refused(
    roots: Path, rules: UriRules, tmp_path: Path
) -> None:
    (roots / "other" / "weights").write_bytes(b"secret")
    (roots / "team" / "in" / "weights").symlink_to(roots / "other" / "weights")
    assert failure_of(roots, rules, tmp_path) == ("uri_not_allowed", "checkpoint_uri")


@pytest.mark.parametrize("targets", [None, ("avx2", "avx512")], ids=["one target", "two"])
def test_what_was_left_is_not_removed_behind_a_link(
    roots: Path, rules: UriRules, targets: tuple[str, ...] | None
) -> None:
    job: Job = make_job()
    spec = job.spec.model_copy(update={"output_uri": str(roots / "team" / "out"), "target": targets})
    job = job.model_copy(update={"spec": spec, "uris": rules})
    (roots / "other" / "avx2").mkdir()
    (roots / "other" / "avx2" / "package").touch()
    (roots / "team" / "out" / job.id).symlink_to(roots / "other" if targets else roots / "other" / "avx2")
    with pytest.raises(UriNotAllowed, match="is a link"):
        remove_unfinished_artifact(artifact_uri_of(job), opened=partial(open_output_of, job))
    assert (roots / "other" / "avx2" / "package").exists()


@pytest.mark.parametrize("path", ["/proc/self/environ", "file:///proc/self/environ"])
def test_without_roots_a_config_cannot_have_the_worker_read_its_own_machine(
    monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    """The API has judged the config's folder, and not what the config names."""
    monkeypatch.delenv("SLIPWAY_FILE_ROOTS", raising=False)
    named = NamedUri(field="feature_configs", uri=path, is_output=False)
    with pytest.raises(UriNotAllowed, match="below none of the folders"):
        places_of(UriRules()).require_config_file(named, "s3://bucket/configs")
