"""The verdict of the release gate, from an attempt's report to the job's record, events and counts."""

from exporter.options.release_gate import ReleaseGate
from exporter.reports.release_report import Finding, Verdict
from exporter.spec import TowerName
from jobs.events import make_outbox_entries
from jobs.fleet.tallies import count_attempt
from jobs.model import Job, JobState, Lease
from jobs.progress import finish
from jobs.stores.record import read_record, write_record, write_spec
from jobs.verdicts import MOST_FINDINGS, ReleaseVerdict, describe_finding, describe_objections
from tests.jobs.factories import (
    AS_GOOD,
    MINUTE,
    NOW,
    WORSE,
    make_failure,
    make_gated_job,
    make_job,
    make_outcome,
    make_report,
)


def counted(job: Job) -> list[str]:
    return [tally.ending for tally in count_attempt(job) if tally.name == "releases"]


def test_a_release_that_passed_is_blessed() -> None:
    job = make_gated_job(make_report(AS_GOOD))
    assert (job.state, job.blessed, counted(job)) == (JobState.SUCCEEDED, True, ["blessed"])


def test_a_release_that_is_worse_is_published_and_not_blessed() -> None:
    job = make_gated_job(make_report(AS_GOOD, WORSE))
    assert (job.state, job.blessed, counted(job)) == (JobState.SUCCEEDED, False, ["not_blessed"])
    assert job.verdicts[0].objections == (WORSE,)
    assert job.verdicts[0].report_sha256 == "ab" * 32


def test_a_release_that_could_not_be_judged_is_not_blessed_whatever_else_the_report_says() -> None:
    report = make_report(failure="the rows have no labels").model_copy(update={"blessed": True})
    job = make_gated_job(report)
    assert (job.blessed, counted(job)) == (False, ["not_judged"])
    assert describe_objections(job.verdicts) == "the rows have no labels"


def test_an_artifact_that_was_adopted_without_a_report_is_not_blessed() -> None:
    job = make_gated_job(None)
    assert (job.blessed, counted(job)) == (False, ["not_judged"])
    assert "ended after it had published" in job.verdicts[0].failure


def test_an_incomplete_release_is_not_judged_and_says_so() -> None:
    job = make_gated_job(outcome=make_outcome(failed={TowerName.ITEM: make_failure()}))
    assert (job.state, job.blessed) == (JobState.PARTIALLY_SUCCEEDED, False)
    assert job.verdicts[0].failure == "not judged: the release is not complete without its item"


def test_a_job_without_a_gate_has_no_verdict() -> None:
    running = make_job().begin_attempt(Lease(worker="w1", until=NOW + MINUTE), "cpu", NOW)
    job = finish(running, make_outcome(), NOW)
    assert (job.blessed, job.verdicts, counted(job)) == (None, (), [])


def test_of_several_targets_every_one_must_be_blessed() -> None:
    job = make_job()
    spec = job.spec.model_copy(update={"release_gate": ReleaseGate(), "target": ("avx2", "avx512")})
    towers = tuple(
        tower.model_copy(update={"target": target}) for target in spec.targets for tower in job.towers
    )
    job = job.model_copy(update={"spec": spec, "towers": towers})
    for target, finding in (("avx2", AS_GOOD), ("avx512", WORSE)):
        assert job.blessed is None
        job = job.begin_attempt(Lease(worker="w1", until=NOW + MINUTE), target, NOW)
        job = finish(job, make_outcome().model_copy(update={"release": make_report(finding)}), NOW)
    assert [(verdict.target, verdict.blessed) for verdict in job.verdicts] == [
        ("avx2", True),
        ("avx512", False),
    ]
    assert job.blessed is False
    assert describe_objections(job.verdicts).startswith("avx512: auc of ctr failed")
    assert counted(job) == ["not_blessed"]  # the first target's attempt has counted its own


def test_the_record_keeps_the_verdict_and_old_records_have_none() -> None:
    for job in (make_gated_job(make_report(WORSE)), make_job()):
        assert read_record(job.id, write_record(job), write_spec(job.spec)) == job
    assert "verdicts" not in write_record(make_job())


def test_long_texts_and_lists_of_a_report_are_cut() -> None:
    long = WORSE.model_copy(update={"subject": "s" * 5000, "detail": "d" * 5000})
    report = make_report(*([AS_GOOD] * 500), long, failure="f" * 5000)
    verdict = ReleaseVerdict.of(report, None, None)
    assert (len(verdict.findings), verdict.left_out) == (MOST_FINDINGS, 501 - MOST_FINDINGS)
    assert verdict.findings[0].verdict is Verdict.FAILED
    assert len(verdict.model_dump_json()) < 10_000


def test_objections_are_told_with_their_figures() -> None:
    assert describe_finding(WORSE) == "auc of ctr failed (0.61, baseline 0.7, allowed 0.69)"
    few = Finding(measure="gauc", rows=12, verdict=Verdict.TOO_FEW)
    assert describe_finding(few) == "gauc too few on 12 rows"
    told = describe_objections([ReleaseVerdict.of(make_report(*([WORSE] * 12)), None, None)])
    assert told.endswith("and 2 more")


def test_the_last_event_tells_the_verdict_with_what_stands_against_it() -> None:
    running = make_job().begin_attempt(Lease(worker="w1", until=NOW + MINUTE), "cpu", NOW)
    *towers, end = make_outbox_entries(running, make_gated_job(make_report(AS_GOOD, WORSE)))
    assert end.event.data.blessed is False
    assert end.event.data.verdicts[0].findings == (WORSE,)
    assert all("blessed" not in each.event.model_dump_json() for each in towers)


def test_events_of_jobs_without_a_gate_are_as_older_programs_know_them() -> None:
    running = make_job().begin_attempt(Lease(worker="w1", until=NOW + MINUTE), "cpu", NOW)
    for entry in make_outbox_entries(running, finish(running, make_outcome(), NOW)):
        assert {"blessed", "verdicts"}.isdisjoint(entry.event.model_dump(mode="json")["data"])
