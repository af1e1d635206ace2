"""What is published of towers that passed and towers that failed; what a second attempt finds."""

import hashlib
import os
import signal
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from exporter.artifact.read import file_ref, read_manifest
from exporter.attempt.attempt import Attempt, ExportedTower, TowerResult
from exporter.distributed.ranks import Ranks
from exporter.errors import (
    AlreadyPublished,
    FamilyNotListed,
    InvalidArtifact,
    LeaseUnproven,
    StorageError,
)
from exporter.manifest import TowerEntry, VerificationReport
from exporter.outcome import Failure
from exporter.pipeline.export import export
from exporter.pipeline.publish import (
    export_and_upload_towers,
    find_earlier_outcome,
    publish_towers,
    upload_exported_tower,
)
from exporter.spec import ExportSpec, TowerName
from exporter.stages import Stage, StageClock, StageEvent
from exporter.storage.places import Places
from exporter.storage.uris import FileRoots
from exporter.towers.plan import PlannedTower, TowerToExport, plan_towers
from tests.exporter.stage_events import ignore_stages
from tests.installed_families import Install

FIXTURES = Path(__file__).parents[2] / "fixtures" / "torcheasyrec"
FAILURE = Failure(code="verification_failed", message="batch_7: differs")


@pytest.fixture
def attempt(tmp_path: Path) -> Attempt:
    spec = ExportSpec(
        config=(FIXTURES / "hstu_match" / "pipeline.config").read_text(),
        checkpoint_uri="unread",
        item_input_uri="unread",
        output_uri=str(tmp_path / "out"),
    )
    return Attempt(job_id="job", spec=spec, workspace=tmp_path)


@pytest.fixture
def planned(attempt: Attempt) -> tuple[PlannedTower, ...]:
    assert attempt.spec.config is not None
    return plan_towers(attempt.spec, attempt.spec.config)


@pytest.fixture
def exported(attempt: Attempt) -> Callable[[PlannedTower], TowerResult]:
    def export(tower: PlannedTower) -> TowerResult:
        name = tower.config.name
        path, local = f"{name}/aoti/aoti_model.pt2", attempt.workspace / f"{name}.pt2"
        local.write_bytes(b"compiled " + name.encode())
        entry = TowerEntry(
            name=name,
            view=tower.config.view,
            package=file_ref(path, local),
            files=(),
            inputs=(),
            outputs=(),
            dims=(),
            verified=VerificationReport(tolerance=1e-5, largest_difference=0.0, cases=()),
            stage_seconds={},
        )
        ready = ExportedTower(entry=entry, files={path: local}, sources=(), op_libraries=())
        return TowerResult(planned=tower, exported=ready)

    return export


@pytest.fixture
def sent(attempt: Attempt, exported: "Exported") -> "Exported":
    """An exported tower whose files are where the artifact is to be."""
    return lambda tower: upload_exported_tower(exported(tower), attempt, ignore_stages)


Exported = Callable[[PlannedTower], TowerResult]


def test_a_failed_tower_is_reported_and_nothing_of_it_published(
    attempt: Attempt, planned: tuple[PlannedTower, ...], sent: Exported
) -> None:
    user, item = planned
    outcome = publish_towers([TowerResult(planned=user, failure=FAILURE), sent(item)], attempt)
    assert {tower.tower: tower.failure for tower in outcome.towers} == {
        TowerName.ITEM: None,
        TowerName.USER: FAILURE,
    }
    assert outcome.manifest_uri is not None
    assert [tower.name for tower in read_manifest(outcome.manifest_uri).towers] == ["item"]
    assert not (Path(attempt.spec.output_uri) / "job" / "user").exists()


def test_without_a_sound_tower_there_is_no_artifact(
    attempt: Attempt, planned: tuple[PlannedTower, ...]
) -> None:
    outcome = publish_towers([TowerResult(planned=tower, failure=FAILURE) for tower in planned], attempt)
    assert outcome.manifest_uri is None
    assert not Path(attempt.spec.output_uri).exists()


def test_a_tower_is_sent_while_the_next_one_is_still_at_work(
    attempt: Attempt, planned: tuple[PlannedTower, ...], exported: Exported
) -> None:
    _, item = planned
    told = attempt.workspace / "events"
    folder = Path(attempt.artifact_uri)

    def note(event: StageEvent) -> None:
        with told.open("a") as file:
            file.write(f"{event.tower} {event.stage} {event.kind}\n")

    def export(tower: TowerToExport) -> TowerResult:
        assert isinstance(tower, PlannedTower)
        with StageClock(tower.config.name, note).stage(Stage.VERIFY):
            deadline = time.monotonic() + 30
            while tower is item and "user publish finished" not in told.read_text():
                assert time.monotonic() < deadline
                time.sleep(0.01)
            assert not (folder / "manifest.json").exists()
            return exported(tower)

    results = export_and_upload_towers(planned, export, attempt, note)
    lines = told.read_text().splitlines()
    assert lines.index("item verify started") < lines.index("item verify finished")
    assert lines.index("user publish finished") < lines.index("item verify finished")
    outcome = publish_towers(results, attempt)
    assert [tower.name for tower in read_manifest(str(outcome.manifest_uri)).towers] == ["user", "item"]


def test_what_cannot_be_sent_keeps_all_from_being_published(
    attempt: Attempt, planned: tuple[PlannedTower, ...], exported: Exported, sent: Exported
) -> None:
    user, item = planned
    rival = Path(attempt.artifact_uri) / "item" / "fg.json"
    rival.parent.mkdir(parents=True)
    rival.write_text("another attempt's")
    outcome = publish_towers([sent(user), sent(item)], attempt)
    assert outcome.failure is not None and outcome.failure.code == "already_published"
    assert outcome.manifest_uri is None
    assert [path for path in Path(attempt.spec.output_uri).rglob("*") if path.is_file()] == [rival]


def test_a_sender_that_is_killed_leaves_a_failure_that_may_pass(
    attempt: Attempt, planned: tuple[PlannedTower, ...], exported: Exported
) -> None:
    def die(event: StageEvent) -> None:
        if event.kind == "progress":
            os.kill(os.getpid(), signal.SIGKILL)

    ready = exported(planned[0])
    [result] = export_and_upload_towers(planned[:1], lambda tower: ready, attempt, die)
    assert result.upload_failure is not None and result.upload_failure.retryable
    assert "sent the user tower was killed by SIGKILL" in result.upload_failure.message


def test_a_sender_that_hangs_is_ended_and_the_failure_says_in_which_stage(
    attempt: Attempt, planned: tuple[PlannedTower, ...], exported: Exported
) -> None:
    hanging = replace(attempt, stage_limit_s=0.3, await_lease=partial(time.sleep, 30))
    ready, begun = exported(planned[0]), time.monotonic()
    [result] = export_and_upload_towers(planned[:1], lambda tower: ready, hanging, ignore_stages)
    assert time.monotonic() - begun < 20
    assert result.upload_failure is not None and result.upload_failure.code == "stage_timed_out"
    assert "user tower: stage publish took more than 0.3 s" in result.upload_failure.message


def test_a_sender_that_loses_its_lease_sends_no_further_file(
    attempt: Attempt, planned: tuple[PlannedTower, ...], exported: Exported
) -> None:
    asked: list[int] = []

    def lose() -> None:
        asked.append(len(asked))
        if len(asked) > 1:  # first before anything, then before each file
            raise LeaseUnproven("another has the job")

    result = upload_exported_tower(exported(planned[0]), replace(attempt, await_lease=lose), ignore_stages)
    assert result.upload_failure is not None and result.upload_failure.code == "lease_unproven"
    assert len(asked) == 2 and not Path(attempt.artifact_uri).exists()


def test_publishing_is_a_stage_of_every_tower(
    attempt: Attempt, planned: tuple[PlannedTower, ...], exported: Exported
) -> None:
    events: list[StageEvent] = []
    for tower in planned:
        upload_exported_tower(exported(tower), attempt, events.append)
    ended = {event.tower for event in events if event.stage is Stage.PUBLISH and event.kind == "finished"}
    assert ended == {"user", "item"}


def test_a_second_attempt_finds_what_the_first_published(
    attempt: Attempt, planned: tuple[PlannedTower, ...], sent: Exported
) -> None:
    user, item = planned
    assert find_earlier_outcome(attempt, planned) is None
    first = publish_towers([sent(user), TowerResult(planned=item, failure=FAILURE)], attempt)
    found = find_earlier_outcome(attempt, planned)
    assert found is not None
    assert found.manifest_uri == first.manifest_uri
    written = Path(str(first.manifest_uri)).read_bytes()
    assert (first.manifest_sha256, found.manifest_sha256) == (hashlib.sha256(written).hexdigest(), None)
    assert [(tower.tower, tower.entry is not None) for tower in found.towers] == [
        (TowerName.USER, True),
        (TowerName.ITEM, False),
    ]


def test_a_second_attempt_does_not_take_another_jobs_manifest_for_its_own(
    attempt: Attempt, planned: tuple[PlannedTower, ...], sent: Exported
) -> None:
    publish_towers([sent(tower) for tower in planned], attempt)
    other = replace(attempt, job_id="other", folder=attempt.folder or attempt.job_id)
    with pytest.raises(InvalidArtifact, match="not of other"):
        find_earlier_outcome(other, planned)


@pytest.mark.parametrize("lost", [True, False])
def test_a_manifest_without_its_files_is_left_to_who_has_the_job_by_now(
    attempt: Attempt, planned: tuple[PlannedTower, ...], sent: Exported, lost: bool
) -> None:
    manifest = Path(str(publish_towers([sent(planned[0])], attempt).manifest_uri))
    (manifest.parent / "user" / "aoti" / "aoti_model.pt2").unlink()
    asked: list[int] = []

    def still_ours() -> None:
        asked.append(1)
        if len(asked) == 2:  # the files have been looked at
            manifest.write_text("of the newer attempt")
            if lost:
                raise LeaseUnproven("another has the job")

    with pytest.raises(LeaseUnproven if lost else StorageError):
        find_earlier_outcome(replace(attempt, await_lease=still_ours), planned[:1])
    assert manifest.read_text() == "of the newer attempt"


def test_a_job_is_never_published_twice(
    attempt: Attempt, planned: tuple[PlannedTower, ...], sent: Exported
) -> None:
    results = [sent(tower) for tower in planned]
    assert publish_towers(results, attempt).manifest_uri is not None
    [again, _] = [sent(tower) for tower in planned]
    assert again.upload_failure is not None and again.upload_failure.code == "already_published"
    with pytest.raises(AlreadyPublished):
        publish_towers(results, attempt)
    assert len(read_manifest(attempt.artifact_uri).towers) == 2


def test_a_crash_of_a_familys_code_is_only_its_towers_death(install: Install, tmp_path: Path) -> None:
    name = install("crashing_family", "import os; os.kill(os.getpid(), 9)")
    spec = ExportSpec(
        config="", family=name, checkpoint_uri="x", sample_input_uri="x", output_uri=str(tmp_path / "out")
    )
    attempt = Attempt(job_id="job", spec=spec, workspace=tmp_path, families=(name,))
    outcome = export(attempt, Ranks(), ignore_stages)
    assert outcome is not None
    [tower] = outcome.towers
    assert tower.failure is not None
    assert (tower.tower, tower.failure.code) == (TowerName.MODEL, "tower_died")


def test_an_attempt_loads_listed_families_only(install: Install, tmp_path: Path) -> None:
    name = install("unlisted_here", "import os; os.kill(os.getpid(), 9)")
    spec = ExportSpec(config="", family=name, checkpoint_uri="x", sample_input_uri="x", output_uri="x")
    with pytest.raises(FamilyNotListed):
        export(Attempt(job_id="job", spec=spec, workspace=tmp_path), Ranks(), ignore_stages)


@pytest.mark.parametrize("name", ["job", "job/item", "job/item/aoti", "."])
def test_a_link_that_is_laid_right_before_sending_is_not_followed(
    attempt: Attempt, planned: tuple[PlannedTower, ...], sent: Exported, exported: Exported, name: str
) -> None:
    """One tower is sent; then somebody who can write there puts a link where the next one goes."""
    output = Path(attempt.spec.output_uri)
    attempt = replace(attempt, places=Places(folders=FileRoots(roots=(output.parent,))))
    user, item = (sent(planned[0]), exported(planned[1]))
    outside = output.parent.with_name(f"{output.parent.name}-outside")
    outside.mkdir()
    link = output / name
    if link.exists():
        link.rename(output.parent / "moved")
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(outside)
    results = [user, upload_exported_tower(item, attempt, ignore_stages)]
    outcome = publish_towers(results, attempt)
    assert outcome.manifest_uri is None
    assert outcome.failure is not None and outcome.failure.code == "uri_not_allowed"
    assert list(outside.iterdir()) == []
    assert not list(output.parent.rglob("manifest.json"))
    if name not in ("job", "."):  # its folder is still there, and empty
        assert not (output / "job" / "user").exists()
