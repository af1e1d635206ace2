"""What is published of towers that passed and towers that failed; what a second attempt finds."""

from collections.abc import Callable
from pathlib import Path

import pytest

from exporter.attempt import Attempt, ExportedTower, TowerResult
from exporter.distributed.ranks import Ranks
from exporter.errors import AlreadyPublished, FamilyNotListed
from exporter.manifest import TowerEntry, VerificationReport
from exporter.outcome import Failure
from exporter.pipeline import export
from exporter.planning import PlannedTower, plan_towers
from exporter.publish import file_ref, read_manifest
from exporter.publishing import publish_towers, published_earlier
from exporter.spec import ExportSpec, TowerName
from exporter.stages import Stage, StageEvent, ignore_stages
from tests.installed_families import Install

FIXTURES = Path(__file__).parents[1] / "fixtures" / "torcheasyrec"
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


Exported = Callable[[PlannedTower], TowerResult]


def test_a_failed_tower_is_reported_and_nothing_of_it_published(
    attempt: Attempt, planned: tuple[PlannedTower, ...], exported: Exported
) -> None:
    user, item = planned
    results = [TowerResult(planned=user, failure=FAILURE), exported(item)]
    outcome = publish_towers(results, attempt, ignore_stages)
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
    outcome = publish_towers(
        [TowerResult(planned=tower, failure=FAILURE) for tower in planned], attempt, ignore_stages
    )
    assert outcome.manifest_uri is None
    assert not Path(attempt.spec.output_uri).exists()


def test_publishing_is_a_stage_of_every_tower(
    attempt: Attempt, planned: tuple[PlannedTower, ...], exported: Exported
) -> None:
    events: list[StageEvent] = []
    publish_towers([exported(tower) for tower in planned], attempt, events.append)
    ended = {event.tower for event in events if event.stage is Stage.PUBLISH and event.kind == "finished"}
    assert ended == {"user", "item"}


def test_a_second_attempt_finds_what_the_first_published(
    attempt: Attempt, planned: tuple[PlannedTower, ...], exported: Exported
) -> None:
    user, item = planned
    assert published_earlier(attempt, planned) is None
    first = publish_towers(
        [exported(user), TowerResult(planned=item, failure=FAILURE)], attempt, ignore_stages
    )
    found = published_earlier(attempt, planned)
    assert found is not None
    assert found.manifest_uri == first.manifest_uri
    assert [(tower.tower, tower.entry is not None) for tower in found.towers] == [
        (TowerName.USER, True),
        (TowerName.ITEM, False),
    ]


def test_a_job_is_never_published_twice(
    attempt: Attempt, planned: tuple[PlannedTower, ...], exported: Exported
) -> None:
    results = [exported(tower) for tower in planned]
    publish_towers(results, attempt, ignore_stages)
    with pytest.raises(AlreadyPublished):
        publish_towers(results, attempt, ignore_stages)


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
