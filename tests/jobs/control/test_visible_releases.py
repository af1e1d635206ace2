"""The releases that a caller sees of models whose names several teams use."""

import pytest

from exporter.storage.uris import UriRules
from jobs.control.releases import MemoryPointers, Releases
from jobs.control.visible_releases import MOST_READ, VisibleReleases
from jobs.errors import ModelNotFound
from jobs.ids import JobId, new_job_id
from jobs.lease.leases import claim
from jobs.model import Job
from jobs.spec import JobSpec
from jobs.stores.memory_store import MemoryJobStore
from jobs.stores.visible_jobs import VisibleJobs
from tests.jobs.factories import CONFIG_TEXT, MINUTE, make_job, make_outcome, make_spec

ADS = UriRules(outputs=("s3://models/ads",))


class CountedStore(MemoryJobStore):
    """A store that counts the jobs read."""

    reads = 0

    def get(self, job_id: JobId) -> Job:
        """Count and return the job."""
        self.reads += 1
        return super().get(job_id)


@pytest.fixture
def store() -> CountedStore:
    return CountedStore()


@pytest.fixture
def pointers() -> MemoryPointers:
    return MemoryPointers()


@pytest.fixture
def ads(store: CountedStore, pointers: MemoryPointers) -> VisibleReleases:
    return VisibleReleases(VisibleJobs(store, ADS), pointers)


def release(
    store: CountedStore, pointers: MemoryPointers, team: str, model: str, labels: dict[str, str] | None = None
) -> Job:
    job = make_job(job_id=new_job_id()).model_copy(
        update={
            "model": model,
            "labels": labels or {},
            "spec": JobSpec.of(make_spec(output_uri=f"s3://models/{team}/{model}")),
        }
    )
    store.add(job, CONFIG_TEXT)
    holding = claim(store, job.id, worker="w", length=MINUTE)
    assert holding is not None
    pointers.released.setdefault(model, []).append(job.id)
    return holding.finish(make_outcome(root=job.spec.output_uri))


def test_the_latest_release_is_the_newest_visible_one(
    store: CountedStore, pointers: MemoryPointers, ads: VisibleReleases
) -> None:
    ours = release(store, pointers, "ads", "m", {"region": "eu"})
    theirs = release(store, pointers, "feed", "m", {"region": "us"})
    assert Releases(store, pointers).find_latest("m").job_id == max(ours.id, theirs.id)
    assert ads.find_latest("m").job_id == ours.id
    with pytest.raises(ModelNotFound, match="with these labels of a model m"):
        ads.find_latest("m", {"region": "us"})


def test_a_hidden_model_is_as_one_that_does_not_exist(
    store: CountedStore, pointers: MemoryPointers, ads: VisibleReleases
) -> None:
    release(store, pointers, "feed", "hidden")
    Releases(store, pointers).promote("hidden", None)
    for call in (ads.find_latest, ads.get_promoted):
        with pytest.raises(ModelNotFound) as hidden:
            call("hidden")
        with pytest.raises(ModelNotFound) as missing:
            call("missing")
        assert hidden.value.message.replace("hidden", "missing") == missing.value.message
    assert ads.models(limit=10).names == ()


def test_a_promoted_release_without_its_job_is_hidden(
    store: CountedStore, pointers: MemoryPointers, ads: VisibleReleases
) -> None:
    job = release(store, pointers, "ads", "m")
    Releases(store, pointers).promote("m", None)
    assert ads.get_promoted("m").job_id == job.id
    store.remove(job)
    with pytest.raises(ModelNotFound, match="promoted release"):
        ads.get_promoted("m")
    assert Releases(store, pointers).get_promoted("m").job_id == job.id


def test_of_promotions_and_releases_the_hidden_ones_are_left_out(
    store: CountedStore, pointers: MemoryPointers, ads: VisibleReleases
) -> None:
    ours, theirs = (release(store, pointers, team, "m") for team in ("ads", "feed"))
    for job, name in ((theirs, "fay"), (ours, "ann"), (theirs, "fay")):
        Releases(store, pointers).promote("m", job.id, by=name)
    assert [each.by for each in ads.promotions("m")] == ["ann"]
    assert [each.job_id for each in ads.newest("m", limit=9)] == [ours.id]
    assert (previous := ads.get_previous("m")) is not None and previous.job_id == ours.id
    Releases(store, pointers).roll_back("m")
    assert ads.get_previous("m") is None


def test_pages_of_models_go_on_by_position(
    store: CountedStore, pointers: MemoryPointers, ads: VisibleReleases
) -> None:
    for name in ("a-feed", "b-ads", "c-feed", "d-ads"):
        release(store, pointers, name[2:], name)
    first = ads.models(limit=1)
    assert first.names == ("b-ads",) and first.next is not None and first.next.isdecimal()
    second = ads.models(limit=1, after=first.next)
    assert second.names == ("d-ads",)
    assert ads.models(limit=1, after=second.next).names == ()
    assert ads.models(limit=9, after="9" * 100).names == ()


def test_a_bounded_number_of_releases_is_read(
    store: CountedStore, pointers: MemoryPointers, ads: VisibleReleases
) -> None:
    hidden = release(store, pointers, "feed", "m")
    pointers.released = {name: [hidden.id] * 2 * MOST_READ for name in ("k", "l", "m")}
    store.reads = 0
    with pytest.raises(ModelNotFound):
        ads.find_latest("m")
    page = ads.models(limit=10)
    assert store.reads <= 2 * MOST_READ
    assert (page.names, page.next) == ((), "1")
