import threading
from datetime import timedelta

import pytest
import redis

from exporter.errors import SourceNotFound, StorageError
from exporter.storage.uris import UriRules
from jobs.hooks.errors import WebhookUnverified
from jobs.hooks.intake import Intake
from jobs.hooks.redis_book import RedisBook
from jobs.hooks.redis_receipts import RedisReceipts
from jobs.hooks.triggers import Trigger
from jobs.ids import JobId
from jobs.model import Job
from jobs.request import ExportRequest
from jobs.stores.redis_store import RedisJobStore
from tests.jobs.factories import CONFIG_TEXT, NOW, make_job
from tests.jobs.hooks.factories import make_template, make_training_event, make_trigger


class Submitting:
    """Adds jobs to a store, or raises if told to."""

    def __init__(self, store: RedisJobStore) -> None:
        self.store = store
        self.added: list[JobId] = []
        self.error: Exception | None = None
        self.breaks_after = 100

    def __call__(self, trigger: Trigger, request: ExportRequest, job_id: JobId) -> Job:
        if self.error:
            raise self.error
        if len(self.added) >= self.breaks_after:
            raise StorageError("S3 is away")
        job = make_job(job_id=job_id)
        if self.store.add(job, CONFIG_TEXT) is None:
            self.added.append(job_id)
        return job


@pytest.fixture
def submitting(redis_client: redis.Redis) -> Submitting:
    return Submitting(RedisJobStore(redis_client))


@pytest.fixture
def intake(redis_client: redis.Redis, submitting: Submitting) -> Intake:
    triggers = RedisBook(redis_client, "triggers", Trigger)
    triggers.put("nightly", make_trigger("nightly"))
    return Intake(triggers, RedisReceipts(redis_client, timedelta(hours=1)), submitting, lambda: NOW)


def test_an_event_starts_one_job_per_trigger_it_fits(intake: Intake, submitting: Submitting) -> None:
    intake.triggers.put("other", make_trigger("other", model="dlrm-*"))
    receipt, duplicate = intake.receive(make_training_event())
    assert receipt is not None
    assert [(start.trigger, start.started) for start in receipt.starts] == [("nightly", True)]
    assert not duplicate
    assert submitting.added == [receipt.starts[0].job]


def test_the_same_event_again_is_answered_with_the_same_job(intake: Intake, submitting: Submitting) -> None:
    first, _ = intake.receive(make_training_event())
    again, duplicate = intake.receive(make_training_event())
    assert again == first
    assert duplicate
    assert len(submitting.added) == 1


def test_the_same_event_at_the_same_moment_starts_one_job(intake: Intake, submitting: Submitting) -> None:
    ready = threading.Barrier(8)

    def receive() -> None:
        ready.wait()
        intake.receive(make_training_event())

    threads = [threading.Thread(target=receive) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(submitting.added) == 1


def test_an_event_without_a_fitting_trigger_is_not_remembered(intake: Intake) -> None:
    event = make_training_event(model="dlrm")
    intake.triggers.put("nightly", make_trigger("nightly", model="hstu-*"))
    assert intake.receive(event) == (None, False)
    intake.triggers.put("nightly", make_trigger("nightly"))
    assert intake.receive(event)[0] is not None


def test_what_a_template_lacks_is_recorded_and_tried_again(intake: Intake, submitting: Submitting) -> None:
    event = make_training_event(labels=None)
    receipt, _ = intake.receive(event)
    assert receipt is not None
    failure = receipt.starts[0].failure
    assert failure is not None
    assert failure.code == "trigger_unfilled"
    mended = make_trigger().model_copy(update={"template": make_template(item_input_uri="/rows")})
    intake.triggers.put("nightly", mended)
    receipt, _ = intake.receive(event)
    assert receipt is not None
    assert receipt.starts[0].started
    assert receipt.starts[0].failure is None


def test_a_refused_export_is_recorded(intake: Intake, submitting: Submitting) -> None:
    submitting.error = SourceNotFound("there is no config")
    receipt, _ = intake.receive(make_training_event())
    assert receipt is not None
    assert receipt.starts[0].failure is not None
    assert not receipt.starts[0].started


def test_what_may_pass_is_raised_for_the_sender_to_try_again(intake: Intake, submitting: Submitting) -> None:
    submitting.error = StorageError("S3 is away")
    with pytest.raises(StorageError):
        intake.receive(make_training_event())
    submitting.error = None
    receipt, _ = intake.receive(make_training_event())
    assert receipt is not None
    assert receipt.starts[0].started


def test_what_was_started_stays_started_when_the_next_start_breaks(
    intake: Intake, submitting: Submitting
) -> None:
    intake.triggers.put("other", make_trigger("other"))
    submitting.breaks_after = 1
    with pytest.raises(StorageError):
        intake.receive(make_training_event())
    kept = intake.receipts.find("/trainer/prod", "run-7")
    assert kept is not None
    assert [start.started for start in kept.starts] == [True, False]
    submitting.breaks_after = 2
    receipt, duplicate = intake.receive(make_training_event())
    assert receipt is not None
    assert duplicate
    assert submitting.added == [start.job for start in receipt.starts]


def test_a_webhook_s_id_belongs_to_one_event(intake: Intake) -> None:
    event = make_training_event()
    intake.refuse_replays("msg_1", event, b"{}")
    intake.refuse_replays("msg_1", event, b"{}")  # the sender tries again
    for other, body in ((event.model_copy(update={"id": "run-8"}), b"{}"), (event, b"{ }")):
        with pytest.raises(WebhookUnverified, match="another event"):
            intake.refuse_replays("msg_1", other, body)


def test_a_trigger_shows_what_it_made_of_its_latest_events(intake: Intake) -> None:
    intake.receive(make_training_event())
    intake.receive(make_training_event())  # nothing new
    failing = make_training_event(step=None).model_copy(update={"id": "run-8"})
    intake.receive(failing)
    noted = intake.receipts.latest("nightly")
    assert [(each.event, each.job is not None) for each in noted] == [("run-8", False), ("run-7", True)]
    assert noted[0].failure is not None


def test_what_another_program_started_meanwhile_stays_started(intake: Intake) -> None:
    receipt, _ = intake.receive(make_training_event())
    assert receipt is not None
    failed = receipt.starts[0].model_copy(update={"started": False})
    assert intake.receipts.update_starts(receipt.model_copy(update={"starts": (failed,)})) == receipt
    assert intake.receipts.find(receipt.source, receipt.id) == receipt


def test_a_trigger_without_rules_is_kept_as_programs_of_before_read_it(
    intake: Intake, redis_client: redis.Redis
) -> None:
    assert "uris" not in str(redis_client.hget("triggers", "nightly"))
    bound = make_trigger("bound").model_copy(update={"uris": UriRules(outputs=("s3://team",))})
    intake.triggers.put("bound", bound)
    assert intake.triggers.get("bound") == bound
