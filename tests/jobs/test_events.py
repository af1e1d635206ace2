from datetime import timedelta

from exporter.spec import TowerName
from jobs.events import EventType, make_outbox_entries
from jobs.model import Job, JobState, Lease
from jobs.progress import finish
from tests.jobs.factories import MINUTE, NOW, make_failure, make_job, make_outcome


def _types(old: Job | None, new: Job) -> list[str]:
    return [entry.event.type for entry in make_outbox_entries(old, new)]


def _running() -> Job:
    return make_job().begin_attempt(Lease(worker="w1", until=NOW + MINUTE), "cpu", NOW)


def test_an_accepted_job_is_no_news() -> None:
    assert make_outbox_entries(None, make_job()) == ()


def test_an_attempt_that_begins_is_told() -> None:
    (entry,) = make_outbox_entries(make_job(), _running())
    assert entry.event.type is EventType.EXPORT_STARTED
    assert entry.event.data.attempt == 1


def test_progress_and_renewals_are_no_news() -> None:
    job = _running()
    renewed = job.model_copy(update={"lease": Lease(worker="w1", until=NOW + 2 * MINUTE)})
    assert make_outbox_entries(job, renewed) == ()


def test_the_end_tells_of_every_tower_and_then_of_the_export() -> None:
    job = _running()
    done = finish(job, make_outcome(failed={TowerName.ITEM: make_failure()}), NOW)
    told = make_outbox_entries(job, done)
    assert [entry.event.type for entry in told] == [
        EventType.TOWER_FINISHED,
        EventType.TOWER_FINISHED,
        EventType.EXPORT_FINISHED,
    ]
    assert told[0].event.data.package_uri == "/out/user"
    assert told[1].event.data.failure == make_failure()
    assert told[2].event.data.state is JobState.PARTIALLY_SUCCEEDED


def test_an_attempt_that_is_set_back_has_not_finished_its_towers() -> None:
    failed = dict.fromkeys((TowerName.USER, TowerName.ITEM), make_failure(retryable=True))
    job = _running()
    assert _types(job, finish(job, make_outcome(failed=failed), NOW)) == []


def test_cancelling_is_an_end() -> None:
    assert _types(make_job(), make_job().request_cancel(NOW)) == [EventType.EXPORT_FINISHED]


def test_an_event_keeps_its_id_and_events_differ() -> None:
    job = _running()
    done = finish(job, make_outcome(), NOW + timedelta(hours=1))
    ids = [entry.event.id for entry in make_outbox_entries(job, done)]
    assert ids == [entry.event.id for entry in make_outbox_entries(job, done)]
    assert len(set(ids)) == 3


def test_the_callback_stands_beside_the_event() -> None:
    job = make_job().model_copy(update={"callback_url": "https://example.com/hook"})
    assert make_outbox_entries(job, job.request_cancel(NOW))[0].callback_url == "https://example.com/hook"
