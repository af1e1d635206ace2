"""The stores beside the job store: answers, logs, tallies, releases; in memory and in Redis."""

from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path

import pytest
import redis

from exporter.reports.release_report import ReleaseReport
from exporter.spec import TowerName
from exporter.stages import Stage
from jobs.control.idempotency import AnswerKey, Answers, MemoryAnswers, StoredAnswer
from jobs.control.redis_answers import RedisAnswers
from jobs.control.redis_releases import RedisPointers
from jobs.control.releases import NO_LABELS, MemoryPointers, ReleasePointers, Releases
from jobs.diagnostics.bundles import Bundles, FolderBundles, MemoryBundles
from jobs.diagnostics.logs import MAX_LINES, JobLogs, LogPart, MemoryLogs
from jobs.diagnostics.redis_bundles import RedisBundles
from jobs.diagnostics.redis_logs import RedisLogs
from jobs.errors import JobNotFound, KeyInFlight, KeyReused, ModelNotFound, NoArtifact, ReleaseNotBlessed
from jobs.fleet.redis_tallies import RedisTallies
from jobs.fleet.tallies import MemoryTallies, Tallies, Tally, count_attempt
from jobs.ids import JobId, new_job_id
from jobs.lease.leases import claim
from jobs.model import Job, JobState
from jobs.stores.memory_store import MemoryJobStore
from jobs.stores.redis_store import RedisJobStore
from tests.jobs.factories import (
    CONFIG_TEXT,
    GATED,
    MINUTE,
    WORSE,
    make_failure,
    make_job,
    make_outcome,
    make_report,
)

JOB = new_job_id()
KEY = AnswerKey("a", "k")


@pytest.fixture(params=["memory", "redis"])
def answers(request: pytest.FixtureRequest) -> Answers:
    if request.param == "memory":
        return MemoryAnswers()
    return RedisAnswers(request.getfixturevalue("redis_client"), timedelta(hours=1))


@pytest.fixture(params=["memory", "redis"])
def logs(request: pytest.FixtureRequest) -> JobLogs:
    return MemoryLogs() if request.param == "memory" else RedisLogs(request.getfixturevalue("redis_client"))


@pytest.fixture(params=["memory", "redis"])
def tallies(request: pytest.FixtureRequest) -> Tallies:
    if request.param == "memory":
        return MemoryTallies()
    return RedisTallies(request.getfixturevalue("redis_client"))


def test_an_answer_is_kept_for_its_request(answers: Answers) -> None:
    assert answers.begin(KEY, "print") is None
    with pytest.raises(KeyInFlight, match="Idempotency-Key k "):
        answers.begin(KEY, "print")
    kept = StoredAnswer(fingerprint="print", body="{}")
    answers.keep(KEY, kept)
    assert answers.begin(KEY, "print") == kept
    with pytest.raises(KeyReused):
        answers.begin(KEY, "another")
    assert answers.begin(AnswerKey("b", "k"), "another") is None


def test_no_two_callers_share_a_key(answers: Answers) -> None:
    """Names of tokens' callers may hold any of these characters, and so may keys."""
    pairs = [
        ("oidc:a:b", "k"),
        ("oidc:a", "b:k"),
        ("oidc", "a:b:k"),
        ("oidc%3Aa", "b:k"),
        ("oidc:a%3Ab", "k"),
    ]
    for owner, key in pairs:
        assert answers.begin(AnswerKey(owner, key), owner) is None
        with pytest.raises(KeyInFlight, match=f"Idempotency-Key {key} "):
            answers.begin(AnswerKey(owner, key), owner)


def test_a_dropped_answer_is_asked_for_again(answers: Answers) -> None:
    answers.begin(KEY, "print")
    answers.drop(KEY)
    assert answers.begin(KEY, "another") is None


def test_answers_are_forgotten_in_time(redis_client: redis.Redis) -> None:
    answers = RedisAnswers(redis_client, timedelta(hours=1))
    answers.begin(KEY, "print")
    assert 0 < redis_client.ttl("slipway:answer:a:k") <= 120
    answers.keep(KEY, StoredAnswer(fingerprint="print", body="{}"))
    assert 3000 < redis_client.ttl("slipway:answer:a:k") <= 3600


def test_the_latest_lines_of_a_place_are_kept(logs: JobLogs) -> None:
    numbers = tuple(str(number) for number in range(MAX_LINES + 5))
    logs.append(JOB, [LogPart(tower=TowerName.USER, stage=Stage.TRACE, lines=numbers)])
    logs.append(
        JOB, [LogPart(lines=("before",)), LogPart(tower=TowerName.ITEM, stage=Stage.ROWS, lines=("x",))]
    )
    before, user, item = logs.read(JOB)
    assert (before.lines, before.tower, item.lines) == (("before",), None, ("x",))
    assert (len(user.lines), user.lines[-1]) == (MAX_LINES, numbers[-1])
    assert [part.tower for part in logs.read(JOB, stage=Stage.ROWS)] == [TowerName.ITEM]
    assert logs.read(new_job_id()) == ()


def test_what_is_counted_adds_up(tallies: Tallies) -> None:
    failure = make_failure().model_copy(update={"code": "verification_failed"})
    job = make_job(JobState.FAILED)
    user = job.towers[0].model_copy(update={"failure": failure, "stage_seconds": {Stage.TRACE: 4.0}})
    for _ in range(2):
        tallies.add(count_attempt(job.model_copy(update={"towers": (user, *job.towers[1:])})))
    counted = tallies.read()
    assert counted[Tally(name="attempts", ending="failed")] == 2
    assert counted[Tally(name="gate_failures", tower=TowerName.USER)] == 2
    of_trace = {(tally.name, tally.up_to): amount for tally, amount in counted.items() if tally.stage}
    assert (of_trace["stage_sum", None], of_trace["stage_bucket", 5]) == (8.0, 2)
    assert ("stage_bucket", 2) not in of_trace


@pytest.fixture(params=["memory", "redis", "folder"])
def bundles(request: pytest.FixtureRequest, tmp_path: Path) -> Bundles:
    if request.param == "memory":
        return MemoryBundles()
    if request.param == "folder":
        return FolderBundles(tmp_path / "bundles")
    return RedisBundles(request.getfixturevalue("redis_client"))


def test_the_latest_bundle_of_each_tower_is_kept(bundles: Bundles) -> None:
    job_id = new_job_id()
    for content in (b"first", b"PK\x00\xff"):
        bundles.put(job_id, TowerName.USER, content)
    assert job_id in bundles.put(job_id, None, b"whole")
    kept = [bundles.get(job_id, tower) for tower in (TowerName.USER, None, TowerName.ITEM)]
    assert kept == [b"PK\x00\xff", b"whole", None]


@pytest.fixture(params=["memory", "redis"])
def releases(request: pytest.FixtureRequest) -> Releases:
    if request.param == "memory":
        return Releases(MemoryJobStore(), MemoryPointers())
    client = request.getfixturevalue("redis_client")
    return Releases(RedisJobStore(client), RedisPointers(client))


def finish(
    releases: Releases,
    number: int,
    *,
    model: str = "m",
    labels: Mapping[str, str] = NO_LABELS,
    failed: tuple[TowerName, ...] = (),
    retry_of: JobId | None = None,
    judged: ReleaseReport | None = None,
) -> Job:
    """A job of a model that has ended, with packages of its own."""
    towers = tuple(tower for tower in make_job().towers if not retry_of or tower.name is TowerName.ITEM)
    job = make_job(job_id=JobId(f"{number:026d}")).model_copy(
        update={"model": model, "labels": labels, "retry_of": retry_of, "towers": towers}
    )
    if judged is not None:
        job = job.model_copy(update={"spec": GATED})
    releases.store.add(job, CONFIG_TEXT)
    holding = claim(releases.store, job.id, worker="w", length=MINUTE)
    assert holding is not None
    outcome = make_outcome(failed=dict.fromkeys(failed, make_failure()))
    named = [
        each.model_copy(update={"package_uri": f"/{number}/{each.tower}"}) if each.entry else each
        for each in outcome.towers
    ]
    published = {"towers": tuple(named), "manifest_uri": f"/{number}", "release": None if failed else judged}
    ended = holding.finish(outcome.model_copy(update=published))
    _remember(releases.pointers, ended)
    return ended


def _remember(pointers: ReleasePointers, job: Job) -> None:
    """Add to the memory store what the Redis store adds by itself."""
    if isinstance(pointers, MemoryPointers) and job.state is JobState.SUCCEEDED and job.model:
        pointers.released.setdefault(job.model, []).append(job.id)


def test_the_latest_is_asked_for_by_label(releases: Releases) -> None:
    european = finish(releases, 1, labels={"region": "eu", "tier": "a"})
    finish(releases, 2, labels={"region": "us"})
    assert releases.find_latest("m", {"region": "eu"}).job_id == european.id
    with pytest.raises(ModelNotFound, match="with these labels"):
        releases.find_latest("m", {"region": "eu", "tier": "b"})


def test_models_are_listed_page_by_page(releases: Releases) -> None:
    for number, model in enumerate(("b", "c", "a")):
        finish(releases, number, model=model)
    first = releases.models(limit=2)
    rest = releases.models(limit=2, after=first.next)
    assert (first.names, rest.names, rest.next) == (("a", "b"), ("c",), None)


def test_the_newest_successful_job_is_a_models_latest(releases: Releases) -> None:
    with pytest.raises(ModelNotFound):
        releases.find_latest("m")
    first, second = finish(releases, 1), finish(releases, 2)
    finish(releases, 3, failed=(TowerName.ITEM,))
    assert (releases.models(limit=9).names, releases.find_latest("m").job_id) == (("m",), second.id)
    releases.store.remove(second)
    assert releases.find_latest("m").job_id == first.id


def test_a_retrys_release_is_completed_by_what_it_retried(releases: Releases) -> None:
    partial = finish(releases, 1, failed=(TowerName.ITEM,))
    finish(releases, 2, retry_of=partial.id)
    towers = {tower.name: tower.package_uri for tower in releases.find_latest("m").towers}
    assert towers == {TowerName.USER: "/1/user", TowerName.ITEM: "/2/item"}


def test_a_release_is_promoted_and_rolled_back(releases: Releases) -> None:
    with pytest.raises(ModelNotFound, match="no promoted release"):
        releases.get_promoted("m")
    first, second = finish(releases, 1), finish(releases, 2)
    releases.promote("m", first.id)
    with pytest.raises(ModelNotFound, match="earlier"):
        releases.roll_back("m")
    for _ in range(2):  # the second time changes nothing
        assert releases.promote("m", None).job_id == second.id
    assert releases.roll_back("m").job_id == first.id == releases.get_promoted("m").job_id


def test_a_promoted_release_outlives_its_jobs_record(releases: Releases) -> None:
    job = finish(releases, 1)
    releases.promote("m", job.id)
    releases.store.remove(job)
    assert releases.get_promoted("m").towers[0].package_uri == "/1/user"


def test_only_a_models_own_release_is_promoted(releases: Releases) -> None:
    other, partial = finish(releases, 1), finish(releases, 2, failed=(TowerName.USER,))
    with pytest.raises(ModelNotFound):
        releases.promote("n", other.id)
    with pytest.raises(NoArtifact, match="partially_succeeded"):
        releases.promote("m", partial.id)
    with pytest.raises(JobNotFound):
        releases.promote("m", new_job_id())


def test_a_release_that_is_not_blessed_is_promoted_by_force_only(releases: Releases) -> None:
    job = finish(releases, 1, judged=make_report(WORSE))
    with pytest.raises(ReleaseNotBlessed, match="auc of ctr failed"):
        releases.promote("m", job.id)
    with pytest.raises(ModelNotFound):
        releases.get_promoted("m")
    assert releases.promote("m", job.id, force=True) == releases.get_promoted("m")
    assert releases.get_promoted("m").verdicts[0].objections == (WORSE,)


def test_a_retrys_release_has_the_retrys_verdict(releases: Releases) -> None:
    partial = finish(releases, 1, failed=(TowerName.ITEM,), judged=make_report())
    assert "not complete" in partial.verdicts[0].failure
    finish(releases, 2, retry_of=partial.id, judged=make_report())
    assert releases.promote("m", None).blessed is True
