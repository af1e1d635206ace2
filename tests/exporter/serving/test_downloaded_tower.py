"""Published towers that cannot be opened: one error that names the file."""

from pathlib import Path

import pytest

from exporter.artifact.read import file_ref
from exporter.errors import InvalidArtifact
from exporter.options.release_gate import ReleaseGate
from exporter.release.judge import judge_release
from exporter.reports.release_report import ReleasedArtifacts
from exporter.serving.downloaded_tower import download_tower
from exporter.spec import TowerName
from tests.jobs.factories import make_entry, make_manifest


@pytest.fixture(params=["missing", "no text"])
def artifact(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Return an artifact whose tower has a package, and no config that could be read."""
    root = tmp_path / "artifact"
    package, config = root / "user" / "aoti" / "aoti_model.pt2", root / "user" / "pipeline.config"
    package.parent.mkdir(parents=True)
    package.write_bytes(b"package")
    files = []
    if request.param == "no text":
        config.write_bytes(b"\xff\xfe\x00")
        files.append(file_ref("user/pipeline.config", config))
    described = file_ref("user/aoti/aoti_model.pt2", package)
    entry = make_entry(TowerName.USER).model_copy(update={"package": described, "files": tuple(files)})
    manifest = make_manifest("job", entry).model_copy(update={"architecture": "x86_64", "op_libraries": ()})
    (root / "manifest.json").write_text(manifest.model_dump_json())
    return root


def test_a_tower_without_its_config_is_refused_by_the_name_of_the_file(
    artifact: Path, tmp_path: Path
) -> None:
    with pytest.raises(InvalidArtifact, match=r"user/pipeline\.config is (missing|no text)") as refused:
        download_tower(str(artifact), TowerName.USER, tmp_path / "into")
    assert refused.value.where == f"{artifact}/user/pipeline.config" and "export again" in refused.value.hint


def test_a_release_without_its_config_is_not_judged_and_says_so(artifact: Path, tmp_path: Path) -> None:
    release = ReleasedArtifacts(job_id="job", towers={TowerName.USER: str(artifact)})
    report = judge_release(release, None, ReleaseGate(), config_text="", scratch=tmp_path)
    assert report.failure.startswith("invalid_artifact: ") and "user/pipeline.config" in report.failure
    assert not report.blessed
