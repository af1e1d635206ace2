"""The counts that an attempt adds."""

import pytest

from exporter.errors import PackageUnsteady, PromiseBroken, VerificationFailed
from exporter.spec import Device, TowerName
from exporter.stages import Stage
from jobs.fleet.tallies import count_attempt
from jobs.model import Job, JobState
from tests.jobs.factories import make_failure, make_job


def failed_with(code: str) -> Job:
    job = make_job(JobState.FAILED)
    failure = make_failure().model_copy(update={"code": code})
    return job.model_copy(update={"towers": (job.towers[0].model_copy(update={"failure": failure}),)})


@pytest.mark.parametrize("code", [VerificationFailed.code, PackageUnsteady.code, PromiseBroken.code])
def test_whatever_the_gate_finds_wrong_with_a_package_is_its_failure(code: str) -> None:
    counted = count_attempt(failed_with(code))
    assert [tally.tower for tally in counted if tally.name == "gate_failures"] == [TowerName.USER]


def test_what_was_asked_for_is_no_failure_of_the_gate() -> None:
    assert not [
        tally for tally in count_attempt(failed_with("precision_lost")) if tally.name == "gate_failures"
    ]


def test_of_several_targets_seconds_are_those_of_the_device_at_hand() -> None:
    job = make_job(JobState.RUNNING)
    spec = job.spec.model_validate({**job.spec.model_dump(), "device": "cpu", "target": ["avx2", "sm_90"]})
    tower = job.towers[0].model_copy(update={"target": "sm_90", "stage_seconds": {Stage.TRACE: 4.0}})
    ended = job.model_copy(update={"spec": spec, "target": "sm_90", "towers": (tower,)})
    assert {tally.device for tally in count_attempt(ended) if tally.stage} == {Device.CUDA}
