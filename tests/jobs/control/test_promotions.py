"""Notes of who promoted which release: in memory and in Redis, complete, and of readable entries only."""

import pytest
import redis

from exporter.reports.release_report import ReleaseReport
from jobs.control.promotions import PromotionKind, PromotionNote
from jobs.control.redis_releases import PROMOTED_KEY, PROMOTIONS_KEY, RedisPointers
from jobs.control.releases import MemoryPointers, Releases
from jobs.errors import ModelNotFound
from jobs.ids import new_job_id
from jobs.lease.leases import claim
from jobs.model import Job
from jobs.stores.memory_store import MemoryJobStore
from jobs.stores.redis_store import RedisJobStore
from tests.jobs.factories import CONFIG_TEXT, GATED, MINUTE, NOW, WORSE, make_job, make_outcome, make_report


@pytest.fixture(params=["memory", "redis"])
def releases(request: pytest.FixtureRequest) -> Releases:
    if request.param == "memory":
        return Releases(MemoryJobStore(), MemoryPointers())
    client = request.getfixturevalue("redis_client")
    return Releases(RedisJobStore(client), RedisPointers(client))


def release(releases: Releases, judged: ReleaseReport | None = None) -> Job:
    """A job that has just published a release of the model m."""
    job = make_job(job_id=new_job_id())
    given = {"model": "m", "spec": GATED if judged else job.spec}
    releases.store.add(job.model_copy(update=given), CONFIG_TEXT)
    holding = claim(releases.store, job.id, worker="w", length=MINUTE)
    assert holding is not None
    ended = holding.finish(make_outcome().model_copy(update={"release": judged}))
    if isinstance(releases.pointers, MemoryPointers):  # the Redis store does so by itself
        releases.pointers.released.setdefault("m", []).append(job.id)
    return ended


def test_who_promoted_what_is_noted(releases: Releases) -> None:
    first, second = release(releases), release(releases, make_report(WORSE))
    assert releases.promotions("m") == () and releases.get_previous("m") is None
    releases.promote("m", first.id, by="ann")
    releases.promote("m", first.id, by="late")  # it is promoted already
    releases.promote("m", second.id, force=True, by="bob")
    assert (previous := releases.get_previous("m")) is not None and previous.job_id == first.id
    releases.roll_back("m", "cy")
    with pytest.raises(ModelNotFound, match="earlier"):
        releases.roll_back("m", "dee")
    notes = releases.promotions("m")
    assert [(each.by, each.kind, each.job_id, each.forced) for each in notes] == [
        ("cy", PromotionKind.ROLL_BACK, first.id, False),
        ("bob", PromotionKind.PROMOTE, second.id, True),
        ("ann", PromotionKind.PROMOTE, first.id, False),
    ]
    assert [each.at for each in notes] == sorted((each.at for each in notes), reverse=True)


def test_only_the_expected_release_is_rolled_back(releases: Releases) -> None:
    first, second = release(releases), release(releases)
    for job in (first, second):
        with pytest.raises(ModelNotFound):
            releases.roll_back("m", expected=job.id)
        releases.promote("m", job.id)
    with pytest.raises(ModelNotFound):
        releases.roll_back("m", expected=first.id)
    assert releases.get_promoted("m").job_id == second.id and len(releases.promotions("m")) == 2
    assert releases.roll_back("m", expected=second.id).job_id == first.id


def test_the_newest_releases_are_listed(releases: Releases) -> None:
    with pytest.raises(ModelNotFound, match="successful export"):
        releases.newest("m", limit=2)
    made = sorted((release(releases).id for _ in range(3)), reverse=True)
    assert [each.job_id for each in releases.newest("m", limit=2)] == made[:2]


def test_a_note_that_is_none_is_left_out(redis_client: redis.Redis) -> None:
    pointers = RedisPointers(redis_client)
    redis_client.lpush(PROMOTIONS_KEY + "m", "{", "[]")
    assert pointers.promotions("m") == ()
    redis_client.lpush(PROMOTED_KEY + "m", "[]", "{", "x")  # of three releases none can be read
    noted = PromotionNote(at=NOW, by="me", kind=PromotionKind.ROLL_BACK, job_id=new_job_id())
    assert pointers.roll_back("m", noted) is None
    assert [each.by for each in pointers.promotions("m")] == ["me"]
