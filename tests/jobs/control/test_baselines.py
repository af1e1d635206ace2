"""The releases that a job's release gate needs beside its own, as far as the job's owner sees them."""

import pytest

from exporter.options.release_gate import ReleaseGate
from exporter.spec import ExportSpec, TowerName, device_of
from exporter.storage.uris import NO_RULES, UriRules
from jobs.control.baselines import NO_CONTEXT, ReleaseContext, find_release_context
from jobs.control.control import JobControl, Owner, Plan
from jobs.control.releases import MemoryPointers, Releases
from jobs.errors import BaselineNotUsable, RecordUnreadable
from jobs.ids import JobId, new_job_id
from jobs.lease.leases import claim
from jobs.model import Job, JobState
from jobs.queue import MemoryQueue
from jobs.spec import JobSpec
from jobs.stores.memory_store import MemoryJobStore
from tests.jobs.factories import CONFIG_TEXT, MINUTE, make_failure, make_job, make_outcome, make_spec

ADS = UriRules(outputs=("s3://models/ads",))
BOTH = (TowerName.USER, TowerName.ITEM)


@pytest.fixture
def store() -> MemoryJobStore:
    return MemoryJobStore()


@pytest.fixture
def pointers() -> MemoryPointers:
    return MemoryPointers()


def add_job(
    store: MemoryJobStore, *, team: str = "ads", baseline: str | None = None, **changes: object
) -> Job:
    gate = ReleaseGate(baseline=baseline) if baseline else None
    spec = make_spec(output_uri=f"s3://models/{team}", release_gate=gate)
    job = make_job(job_id=new_job_id()).model_copy(
        update={"spec": JobSpec.of(spec), "model": "ranker", **changes}
    )
    store.add(job, CONFIG_TEXT)
    return job


def end(store: MemoryJobStore, job: Job, *, failed: tuple[TowerName, ...] = ()) -> Job:
    holding = claim(store, job.id, worker="w", length=MINUTE)
    assert holding is not None
    root = f"{job.spec.output_uri}/{job.id}"
    return holding.finish(make_outcome(root=root, failed=dict.fromkeys(failed, make_failure())))


def artifacts(job: Job) -> dict[TowerName, str]:
    return dict.fromkeys(BOTH, f"{job.spec.output_uri}/{job.id}")


def promote(store: MemoryJobStore, pointers: MemoryPointers, job: Job) -> None:
    Releases(store, pointers).promote("ranker", job.id)


def baseline_of(context: ReleaseContext) -> str | None:
    return context.baseline.job_id if context.baseline else None


def test_a_job_without_a_gate_needs_nothing(store: MemoryJobStore) -> None:
    assert find_release_context(add_job(store), store) is NO_CONTEXT


def test_the_promoted_release_is_the_baseline(store: MemoryJobStore, pointers: MemoryPointers) -> None:
    job = add_job(store, baseline="promoted")
    assert find_release_context(job, store, pointers) == NO_CONTEXT  # nothing is promoted: no obstacle
    earlier = end(store, add_job(store))
    promote(store, pointers, earlier)
    found = find_release_context(job, store, pointers)
    assert baseline_of(found) == earlier.id
    assert found.baseline is not None
    assert dict(found.baseline.towers) == artifacts(earlier)
    assert found.artifact_uris == (f"s3://models/ads/{earlier.id}",)


def test_another_teams_promoted_release_is_none(store: MemoryJobStore, pointers: MemoryPointers) -> None:
    promote(store, pointers, end(store, add_job(store, team="feed")))
    job = add_job(store, baseline="promoted", uris=ADS)
    assert find_release_context(job, store, pointers) == NO_CONTEXT


class DamagedStore(MemoryJobStore):
    """A store in which something else has written over the record of one job."""

    damaged: JobId | None = None

    def get(self, job_id: JobId) -> Job:
        if job_id == self.damaged:
            raise RecordUnreadable(job_id)
        return super().get(job_id)


@pytest.mark.parametrize(("team", "is_told"), [("ads", True), ("feed", False)])
def test_a_promoted_release_with_a_damaged_record_is_an_obstacle_to_those_who_may_know_of_it(
    pointers: MemoryPointers, team: str, is_told: bool
) -> None:
    store = DamagedStore()
    earlier = end(store, add_job(store, team=team))
    promote(store, pointers, earlier)
    store.damaged = earlier.id
    bound, unbound = (add_job(store, baseline="promoted", uris=uris) for uris in (ADS, NO_RULES))
    found = find_release_context(bound, store, pointers)
    assert (found != NO_CONTEXT) is is_told and found.baseline is None
    assert (f"the record of job {earlier.id} is damaged" in found.obstacle) is is_told
    assert baseline_of(find_release_context(unbound, store, pointers)) == earlier.id  # needs no record


class DamagedPointers(MemoryPointers):
    """Pointers in which something else has written over the promoted release."""

    def has_promoted(self, model: str) -> bool:
        return True


def test_a_damaged_pointer_is_an_obstacle_to_those_who_see_all_releases(store: MemoryJobStore) -> None:
    bound, unbound = (add_job(store, baseline="promoted", uris=uris) for uris in (ADS, NO_RULES))
    obstacle = find_release_context(unbound, store, DamagedPointers()).obstacle
    assert "the record of the promoted release of ranker is damaged" in obstacle
    assert find_release_context(bound, store, DamagedPointers()) == NO_CONTEXT  # it says not whose it is


def test_a_named_job_of_any_model_is_the_baseline(store: MemoryJobStore) -> None:
    earlier = end(store, add_job(store, model="another"))
    assert baseline_of(find_release_context(add_job(store, baseline=earlier.id), store)) == earlier.id


def test_a_named_job_that_has_gone_is_an_obstacle(store: MemoryJobStore) -> None:
    earlier = end(store, add_job(store))
    job = add_job(store, baseline=earlier.id)
    store.remove(earlier)
    found = find_release_context(job, store)
    assert (found.baseline, found.obstacle) == (None, f"release_gate.baseline: there is no job {earlier.id}")


def test_a_named_job_that_the_owner_does_not_see_is_not_used(store: MemoryJobStore) -> None:
    foreign = end(store, add_job(store, team="feed"))
    found = find_release_context(add_job(store, baseline=foreign.id, uris=ADS), store)
    assert (found.baseline, found.obstacle) == (None, f"release_gate.baseline: there is no job {foreign.id}")


def test_a_retry_is_judged_with_the_towers_that_it_keeps(store: MemoryJobStore) -> None:
    first = end(store, add_job(store, baseline="promoted"), failed=(TowerName.ITEM,))
    item = tuple(tower for tower in make_job().towers if tower.name is TowerName.ITEM)
    retry = add_job(store, baseline="promoted", retry_of=first.id, towers=item)
    assert find_release_context(retry, store).siblings == {TowerName.USER: f"s3://models/ads/{first.id}"}
    store.remove(first)
    assert find_release_context(retry, store).obstacle == f"there is no job {first.id}"


def test_the_baseline_is_that_of_the_attempts_target(store: MemoryJobStore) -> None:
    spec = make_spec(output_uri="s3://models/ads", target=("avx2", "avx512"))
    towers = tuple(
        tower.model_copy(update={"target": target})
        for target in ("avx2", "avx512")
        for tower in make_job().towers
    )
    earlier = make_job(job_id=new_job_id()).model_copy(update={"spec": JobSpec.of(spec), "towers": towers})
    store.add(earlier, CONFIG_TEXT)
    for target in ("avx2", "avx512"):
        holding = claim(store, earlier.id, worker="w", length=MINUTE, serves=(target,))
        assert holding is not None
        earlier = holding.finish(make_outcome(root=f"s3://models/ads/{earlier.id}/{target}"))
    gate: dict[str, object] = {"release_gate": ReleaseGate(baseline=earlier.id)}
    for target, found in (("avx512", f"s3://models/ads/{earlier.id}/avx512"), ("sm_90", None)):
        gated = JobSpec.of(make_spec(target=(target,), device=device_of(target), **gate))
        job = make_job().model_copy(update={"target": target, "spec": gated})
        context = find_release_context(job, store)
        assert (context.artifact_uris or (None,)) == (found,)
        assert ("no packages for sm_90" in context.obstacle) is (target == "sm_90")


@pytest.fixture
def control(store: MemoryJobStore) -> JobControl:
    return JobControl(
        store, MemoryQueue(), lambda spec: Plan(spec=spec, towers=BOTH), identify=lambda uri: ()
    )


def gated(baseline: str) -> ExportSpec:
    return make_spec(output_uri="s3://models/ads", release_gate=ReleaseGate(baseline=baseline))


def test_a_baseline_is_looked_for_when_a_job_is_submitted(control: JobControl, store: MemoryJobStore) -> None:
    earlier = end(store, add_job(store))
    for baseline in ("promoted", earlier.id):
        assert control.submit(gated(baseline)).state is JobState.QUEUED
    waiting = add_job(store)
    for baseline, why in (
        (waiting.id, f"job {waiting.id} is queued, and no release"),
        ("nonsense", "there is no job nonsense"),
        (JobId("0" * 26), "there is no job"),
    ):
        with pytest.raises(BaselineNotUsable, match=why) as refused:
            control.submit(gated(baseline))
        assert refused.value.where == "release_gate.baseline"


def test_a_hidden_baseline_is_refused_like_one_that_does_not_exist(
    control: JobControl, store: MemoryJobStore
) -> None:
    hidden, unknown = end(store, add_job(store, team="feed")).id, new_job_id()
    refusals = []
    for baseline in (hidden, unknown):
        with pytest.raises(BaselineNotUsable) as refused:
            control.submit(gated(baseline), owner=Owner("ads", uris=ADS))
        refusals.append((refused.value.message.replace(baseline, "X"), refused.value.hint))
    assert refusals[0] == refusals[1]
