"""The end of an export with a release gate: what happens to the release when judging it goes wrong.

The packages here are no packages, so that what judges them fails unless a test puts something in its place.
"""

import json
import os
import signal
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from exporter.artifact.read import file_ref, recover_published_outcome
from exporter.artifact.upload import remove_unfinished_artifact
from exporter.attempt.attempt import Attempt
from exporter.errors import LeaseUnproven
from exporter.manifest import MANIFEST_NAME
from exporter.options.release_gate import ReleaseGate
from exporter.outcome import ExportOutcome, Failure, TowerOutcome
from exporter.pipeline import release
from exporter.pipeline.release import judge_published, list_candidate
from exporter.reports.release_report import REPORT_NAME, ReleasedArtifacts, ReleaseReport
from exporter.spec import ExportSpec, TowerName
from exporter.stages import Stage, StageEvent
from exporter.storage.places import Places
from exporter.storage.uris import FileRoots, UriRules
from tests.exporter.stage_events import ignore_stages
from tests.jobs.factories import make_entry, make_manifest

Judge = Callable[..., ReleaseReport]
BLESSED = ReleaseReport(job_id="job", baseline=None, blessed=True, findings=(), rows=9, seconds=0.1)


@pytest.fixture
def attempt(tmp_path: Path) -> Attempt:
    gate = ReleaseGate(rows_uri=str(tmp_path / "rows.parquet"))
    spec = ExportSpec(
        config="x", checkpoint_uri="unread", output_uri=str(tmp_path / "out"), release_gate=gate
    )
    return Attempt(job_id="job", spec=spec, workspace=tmp_path, stage_limit_s=60)


@pytest.fixture
def published(attempt: Attempt) -> ExportOutcome:
    """The outcome of an export that has published one tower."""
    root = Path(attempt.artifact_uri)
    package = root / "user" / "aoti" / "aoti_model.pt2"
    package.parent.mkdir(parents=True)
    package.write_bytes(b"no package")
    described = file_ref("user/aoti/aoti_model.pt2", package)
    entry = make_entry(TowerName.USER).model_copy(update={"package": described})
    (root / MANIFEST_NAME).write_text(make_manifest("job", entry).model_dump_json())
    tower = TowerOutcome(tower=TowerName.USER, entry=entry, package_uri=f"{root}/user")
    return ExportOutcome(towers=(tower,), manifest_uri=f"{root}/{MANIFEST_NAME}", manifest_sha256="ab" * 32)


@pytest.fixture
def judged_by(monkeypatch: pytest.MonkeyPatch) -> Callable[[Judge], None]:
    return lambda judge: monkeypatch.setattr(release, "judge_release", judge)


def bless(*_args: object, **_options: object) -> ReleaseReport:
    return BLESSED


def die(*_args: object, **_options: object) -> ReleaseReport:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError


def hang(*_args: object, **_options: object) -> ReleaseReport:
    time.sleep(60)
    raise AssertionError


def refuse(*_args: object, **_options: object) -> ReleaseReport:
    raise AssertionError("judged a second time")


def report_beside(outcome: ExportOutcome) -> ReleaseReport:
    assert outcome.manifest_uri is not None
    return ReleaseReport.model_validate_json(Path(outcome.manifest_uri).with_name(REPORT_NAME).read_bytes())


def failure_of(outcome: ExportOutcome, attempt: Attempt) -> str:
    """The reason why a published release could not be judged."""
    judged = judge_published(outcome, attempt, ignore_stages)
    assert (judged.manifest_uri, judged.towers, judged.failure) == (
        outcome.manifest_uri,
        outcome.towers,
        None,
    )
    assert judged.release is not None and not judged.release.blessed
    assert report_beside(judged) == judged.release
    return judged.release.failure


def test_a_package_that_cannot_be_run_is_not_blessed_and_stays_published(
    published: ExportOutcome, attempt: Attempt
) -> None:
    Path(attempt.artifact_uri, "user", "aoti", "aoti_model.pt2").write_bytes(b"damaged")
    assert failure_of(published, attempt).startswith("invalid_artifact: ")


@pytest.mark.parametrize(
    ("judge", "limit_s", "why"),
    [
        (die, 60, "the process that judged the release was killed by SIGKILL"),
        (hang, 0.5, "stage release took more than 0.5 s and was ended"),
        (lambda *_a, **_k: 1 / 0, 60, "internal_error: ZeroDivisionError: division by zero"),
    ],
)
def test_what_ends_the_judge_ends_nothing_else(
    published: ExportOutcome,
    attempt: Attempt,
    judged_by: Callable[[Judge], None],
    judge: Judge,
    limit_s: float,
    why: str,
) -> None:
    judged_by(judge)
    assert failure_of(published, replace(attempt, stage_limit_s=limit_s)) == why


def test_an_obstacle_is_the_reason_without_any_judge(
    published: ExportOutcome, attempt: Attempt, judged_by: Callable[[Judge], None]
) -> None:
    judged_by(refuse)
    assert failure_of(published, replace(attempt, obstacle="there is no job 7")) == "there is no job 7"


def test_the_next_attempt_takes_over_the_verdict_of_one_that_died_unheard(
    published: ExportOutcome, attempt: Attempt, judged_by: Callable[[Judge], None]
) -> None:
    judged_by(bless)
    first = judge_published(published, attempt, ignore_stages)
    assert (first.release, report_beside(first)) == (BLESSED, BLESSED)
    judged_by(refuse)
    recovered = recover_published_outcome(attempt.artifact_uri, "job", [TowerName.USER])
    assert recovered is not None
    assert (recovered.release, recovered.release_sha256) == (BLESSED, first.release_sha256)
    assert judge_published(recovered, attempt, ignore_stages) == recovered


def test_the_next_attempt_judges_what_one_that_died_had_only_published(
    published: ExportOutcome, attempt: Attempt, judged_by: Callable[[Judge], None]
) -> None:
    recovered = recover_published_outcome(attempt.artifact_uri, "job", [TowerName.USER])
    assert recovered is not None and recovered.release is None
    judged_by(bless)
    assert judge_published(recovered, attempt, ignore_stages).release == BLESSED


def test_a_verdict_goes_with_the_manifest_of_an_artifact_that_is_not_whole(
    published: ExportOutcome, attempt: Attempt, judged_by: Callable[[Judge], None]
) -> None:
    judged_by(bless)
    judge_published(published, attempt, ignore_stages)
    Path(attempt.artifact_uri, "user", "aoti", "aoti_model.pt2").unlink()
    assert recover_published_outcome(attempt.artifact_uri, "job", [TowerName.USER]) is None
    remove_unfinished_artifact(attempt.artifact_uri)
    assert not Path(attempt.artifact_uri, REPORT_NAME).exists()


def test_the_first_verdict_stands(
    published: ExportOutcome, attempt: Attempt, judged_by: Callable[[Judge], None]
) -> None:
    judged_by(bless)
    first = judge_published(published, attempt, ignore_stages)
    worse = BLESSED.model_copy(update={"blessed": False, "failure": "another reason"})
    judged_by(lambda *_a, **_k: worse)
    second = judge_published(published, attempt, ignore_stages)
    assert (second.release, second.release_sha256) == (BLESSED, first.release_sha256)


def test_another_jobs_verdict_is_not_taken_over(
    published: ExportOutcome, attempt: Attempt, judged_by: Callable[[Judge], None]
) -> None:
    planted = BLESSED.model_copy(update={"job_id": "another"})
    Path(attempt.artifact_uri, REPORT_NAME).write_text(planted.model_dump_json())
    judged_by(lambda *_a, **_k: BLESSED.model_copy(update={"blessed": False}))
    judged = judge_published(published, attempt, ignore_stages)
    assert judged.release is not None and not judged.release.blessed
    assert judged.release_sha256 is None  # what lies there is not what was found


def test_an_attempt_without_the_lease_writes_no_verdict(
    published: ExportOutcome, attempt: Attempt, judged_by: Callable[[Judge], None]
) -> None:
    def lose() -> timedelta:
        raise LeaseUnproven("another worker has the job")

    judged_by(bless)
    judged = judge_published(published, replace(attempt, await_lease=lose), ignore_stages)
    assert judged.release_sha256 is None
    assert not Path(attempt.artifact_uri, REPORT_NAME).exists()


def test_an_incomplete_release_is_not_judged(
    published: ExportOutcome, attempt: Attempt, judged_by: Callable[[Judge], None]
) -> None:
    judged_by(refuse)
    failed = TowerOutcome(tower=TowerName.ITEM, failure=Failure(code="x", message="y"))
    partial = published.model_copy(update={"towers": (*published.towers, failed)})
    assert judge_published(partial, attempt, ignore_stages) == partial


def test_without_a_gate_nothing_is_judged(
    published: ExportOutcome, attempt: Attempt, judged_by: Callable[[Judge], None]
) -> None:
    judged_by(refuse)
    spec = attempt.spec.model_copy(update={"release_gate": None})
    assert judge_published(published, replace(attempt, spec=spec), ignore_stages) == published


def test_a_retry_is_judged_with_the_towers_that_it_keeps(published: ExportOutcome, attempt: Attempt) -> None:
    kept = replace(attempt, siblings={TowerName.ITEM: "/out/first"})
    assert dict(list_candidate(published, kept).towers) == {
        TowerName.ITEM: "/out/first",
        TowerName.USER: attempt.artifact_uri,
    }


def test_the_outcome_is_told_before_it_is_judged(
    published: ExportOutcome, attempt: Attempt, judged_by: Callable[[Judge], None]
) -> None:
    told: list[ExportOutcome] = []
    judged_by(bless)
    judge_published(published, replace(attempt, on_published=told.append), ignore_stages)
    assert told == [published]


def test_judging_is_a_stage(
    published: ExportOutcome, attempt: Attempt, judged_by: Callable[[Judge], None], tmp_path: Path
) -> None:
    judged_by(bless)

    def write(event: StageEvent) -> None:  # from another process
        with (tmp_path / "events").open("a") as file:
            file.write(event.model_dump_json() + "\n")

    judge_published(published, attempt, write)
    events = [json.loads(line) for line in (tmp_path / "events").read_text().splitlines()]
    assert [(event["tower"], event["stage"], event["kind"]) for event in events] == [
        ("user", Stage.RELEASE, "started"),
        ("user", Stage.RELEASE, "finished"),
    ]


@pytest.fixture
def earlier(tmp_path: Path) -> ReleasedArtifacts:
    folder = tmp_path / "teams" / "feed" / "old"
    folder.mkdir(parents=True)
    return ReleasedArtifacts(job_id="old", towers={TowerName.USER: str(folder)})


def test_an_earlier_release_is_read_only_where_the_job_may(
    published: ExportOutcome,
    attempt: Attempt,
    earlier: ReleasedArtifacts,
    judged_by: Callable[[Judge], None],
    tmp_path: Path,
) -> None:
    judged_by(bless)
    given = replace(attempt, baseline=earlier)
    out = str(tmp_path / "out")
    for places in (
        Places(rules=UriRules(outputs=(out,))),
        Places(folders=FileRoots(roots=(tmp_path / "out",))),
    ):
        Path(attempt.artifact_uri, REPORT_NAME).unlink(missing_ok=True)
        assert failure_of(published, replace(given, places=places)).startswith("uri_not_allowed: ")
    Path(attempt.artifact_uri, REPORT_NAME).unlink()
    everywhere = replace(given, places=Places(rules=UriRules(outputs=(str(tmp_path),))))
    judged = judge_published(published, everywhere, ignore_stages)
    assert judged.release == BLESSED


def test_a_link_in_an_earlier_release_does_not_lead_out(
    published: ExportOutcome, attempt: Attempt, earlier: ReleasedArtifacts, tmp_path: Path
) -> None:
    Path(earlier.towers[TowerName.USER], "user").symlink_to("/etc")
    given = replace(attempt, baseline=earlier, places=Places(rules=UriRules(outputs=(str(tmp_path),))))
    assert "leads out" in failure_of(published, given)
