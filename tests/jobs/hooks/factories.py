"""Events, deliveries and rules with readable defaults."""

from datetime import timedelta

from jobs.events import JobEvent, OutboxEntry, make_outbox_entries
from jobs.hooks.deliveries import Answer, Delivery, Try
from jobs.hooks.templates import ExportTemplate
from jobs.hooks.training import TrainingEvent
from jobs.hooks.triggers import EventMatch, Trigger
from jobs.ids import new_job_id
from tests.jobs.factories import NOW, make_job

CALLBACK = "https://example.com/hook"
SECRET = "whsec_" + "c2VjcmV0LXNlY3JldC1zZWNyZXQ="


def make_entry(callback_url: str | None = CALLBACK) -> OutboxEntry:
    """The outbox entry of cancelling a job."""
    job = make_job().model_copy(update={"callback_url": callback_url})
    return make_outbox_entries(job, job.request_cancel(NOW))[0]


def make_job_event() -> JobEvent:
    return make_entry().event


def make_delivery(**changes: object) -> Delivery:
    event = make_job_event()
    made = Delivery(id=new_job_id(), event=event, url=CALLBACK, next_at=NOW, created_at=NOW)
    return made.model_copy(update=changes)


def make_try(answer: Answer, after: timedelta = timedelta()) -> Try:
    return Try(at=NOW + after, seconds=0.1, status=answer.status, error=answer.error)


def make_training_event(**data: object) -> TrainingEvent:
    told = {
        "model": "hstu-feed",
        "status": "succeeded",
        "checkpoint_uri": "s3://models/feed/ckpt-11",
        "config_uri": "s3://models/feed/pipeline.config",
        "step": 11,
        "labels": {"region": "eu"},
        **data,
    }
    return TrainingEvent.model_validate(
        {
            "specversion": "1.0",
            "id": "run-7",
            "source": "/trainer/prod",
            "type": "com.example.training.completed",
            "data": {name: value for name, value in told.items() if value is not None},
        }
    )


def make_template(**changes: object) -> ExportTemplate:
    return ExportTemplate.model_validate(
        {
            "config_uri": "{data.config_uri}",
            "checkpoint_uri": "{data.checkpoint_uri}",
            "item_input_uri": "s3://rows/{data.labels.region}/items.parquet",
            "output_uri": "s3://out/{data.model}/{data.step}",
            **changes,
        }
    )


def make_trigger(name: str = "nightly", /, **when: object) -> Trigger:
    return Trigger(
        name=name,
        when=EventMatch.model_validate(when),
        template=make_template(),
        created_at=NOW,
        updated_at=NOW,
    )
