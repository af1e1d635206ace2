"""The queue on Celery and Redis: its configuration, the names of its tasks, and a look into the broker."""

import base64
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar
from uuid import uuid4

import redis
from celery import Celery
from kombu.connection import Connection
from kombu.exceptions import OperationalError
from kombu.messaging import Producer
from kombu.transport import virtual
from kombu.utils.json import dumps

from jobs.celery_messages import JOIN_EXPORT, RUN_EXPORT, read_delivery, read_message_text
from jobs.errors import StoreUnavailable
from jobs.ids import JobId, new_job_id
from jobs.model import Job
from jobs.queue import AddJob, AddJobAsync, HostCall, Message
from jobs.request import Priority
from jobs.route import Route
from jobs.stores.redis_store import translate_redis_errors

QUEUE = "slipway.exports"  # the queue of route cpu; other routes append their name

# A message is delivered again this long after its worker last touched it (see `put_off_redelivery`).
VISIBILITY_TIMEOUT = timedelta(minutes=3)

# A worker takes a message of the first step that has any. Each step is a list of its own in Redis, the
# first one under the queue's plain name.
_STEPS = {Priority.HIGH: 0, Priority.NORMAL: 3, Priority.LOW: 6}
_SEPARATOR = ":"

T = TypeVar("T")

# kombu's own keys.
_UNACKED_KEY = "unacked"
_UNACKED_INDEX_KEY = "unacked_index"


def make_celery(redis_url: str, routes: Sequence[Route] = ("cpu",)) -> Celery:
    """Return the Celery app of the API, or of a worker with these routes.

    Messages may be lost or repeated, because the job store knows the truth.
    """
    app = Celery("slipway", broker=redis_url)
    app.conf.update(
        accept_content=["json"],
        broker_connection_max_retries=None,  # reconnect for as long as Redis is away
        broker_connection_retry_on_startup=True,
        broker_transport_options={
            "priority_steps": sorted(_STEPS.values()),
            "queue_order_strategy": "priority",
            "sep": _SEPARATOR,
            "visibility_timeout": int(VISIBILITY_TIMEOUT.total_seconds()),
            "socket_timeout": 10,
            "socket_connect_timeout": 5,
        },
        event_serializer="json",
        result_backend=None,
        task_acks_late=True,
        task_acks_on_failure=True,
        task_acks_on_timeout=True,
        task_default_queue=QUEUE,
        task_ignore_result=True,
        task_queues={name: {"exchange": name, "routing_key": name} for name in map(queue_name, routes)},
        task_reject_on_worker_lost=False,  # a job that crashes its worker would be delivered for ever
        task_serializer="json",
        task_store_errors_even_if_ignored=False,
        worker_concurrency=1,  # compiling uses every core
        worker_disable_prefetch=True,
        worker_hijack_root_logger=False,
        worker_pool="threads",  # the work is done by child processes, see worker.supervisor
        worker_prefetch_multiplier=1,
        worker_send_task_events=False,
    )
    return app


def queue_name(route: Route) -> str:
    """Return the name of the queue of a route's workers."""
    return QUEUE if route == "cpu" else f"{QUEUE}.{route}"


def message_lists(route: Route = "cpu") -> tuple[str, ...]:
    """Return the lists that hold a route's waiting messages, in the order in which workers read them."""
    return tuple(_list_of(queue_name(route), step) for step in sorted(_STEPS.values()))


def _list_of(queue: str, step: int) -> str:
    return f"{queue}{_SEPARATOR}{step}" if step else queue


class _WritingChannel(virtual.Channel):
    """A channel without a connection, which gives every message back as it would be sent."""

    def _put(self, queue: str, message: dict[str, Any], **_options: Any) -> dict[str, Any]:
        return message


class _WritingTransport(virtual.Transport):
    Channel = _WritingChannel


class MessageWriter:
    """Writes messages about jobs as Celery and kombu lay them into Redis, for whoever sends them."""

    def __init__(self, app: Celery) -> None:
        """Write what `app` would send."""
        self._app = app
        connection = Connection(transport=_WritingTransport)  # type: ignore[no-untyped-call]  # kombu is not typed
        channel = connection.channel()  # type: ignore[no-untyped-call]  # kombu is not typed
        self._producer = Producer(channel, serializer="json")  # type: ignore[no-untyped-call]  # kombu is not typed
        self._forms: dict[tuple[str, int], _Form] = {}

    def write(self, job_id: JobId, priority: Priority, route: Route) -> Message:
        """Return a message about a job to the workers of a route."""
        queue, step = queue_name(route), _STEPS[priority]
        form = self._forms.get((queue, step))
        if form is None:
            form = self._forms[queue, step] = self._write_form(queue, step)
        return Message(_list_of(queue, step), form.fill(job_id))

    def _write_form(self, queue: str, step: int) -> "_Form":
        """Return what all messages to a list have in common, from one that kombu has written."""
        job_id = new_job_id()
        task = self._app.amqp.as_task_v2(
            job_id, RUN_EXPORT, (job_id,), argsrepr="", kwargsrepr="", ignore_result=None
        )
        message = self._producer.publish(  # type: ignore[no-untyped-call]  # kombu is not typed
            task.body, routing_key=queue, headers=task.headers, priority=step, **task.properties
        )
        text = str(dumps(message))  # type: ignore[no-untyped-call]  # kombu is not typed
        body = base64.b64decode(message["body"]).decode()
        return _Form(text, body, message["body"], message["properties"]["delivery_tag"], job_id)


@dataclass(frozen=True)
class _Form:
    """A message as kombu has written it, from which those about other jobs are made."""

    text: str
    body: str
    encoded: str  # the body as the text holds it
    tag: str  # different in every message
    job_id: JobId

    def fill(self, job_id: JobId) -> str:
        """Return the message about another job."""
        body = base64.b64encode(self.body.replace(self.job_id, job_id).encode()).decode()
        text = self.text.replace(self.encoded, body).replace(self.job_id, job_id)
        return text.replace(self.tag, str(uuid4()))


class CeleryQueue:
    """Messages to Celery's workers on Redis; a message has its job's id, by which it can be found."""

    def __init__(self, app: Celery, client: redis.Redis) -> None:
        """Write messages as `app` does; send them, and look into its broker, with `client`."""
        self._app = app
        self._redis = client
        self._writer = MessageWriter(app)

    def enqueue_new(self, job: Job, add: AddJob) -> JobId | None:
        return add(self._write_messages(job))

    async def enqueue_new_async(self, job: Job, add: AddJobAsync) -> JobId | None:
        return await add(self._write_messages(job))

    def _write_messages(self, job: Job) -> list[Message]:
        return [self._writer.write(job.id, job.priority, route) for route in job.pending_routes]

    def enqueue(self, job_id: JobId, priority: Priority = Priority.NORMAL, route: Route = "cpu") -> None:
        key, text = self._writer.write(job_id, priority, route)
        with translate_redis_errors():
            self._redis.lpush(key, text)

    def call_host(self, call: HostCall, route: Route = "cpu") -> None:
        try:
            self._app.send_task(
                JOIN_EXPORT,
                args=[call.model_dump(mode="json")],
                queue=queue_name(route),
                priority=_STEPS[Priority.HIGH],  # the other hosts are waiting already
                expires=call.time_limit_s,
                retry=False,
            )
        except OperationalError as error:
            raise StoreUnavailable(error) from error

    def find_undelivered(self, route: Route = "cpu") -> frozenset[JobId]:
        with translate_redis_errors():
            waiting = [text for key in message_lists(route) for text in self._redis.lrange(key, 0, -1)]
            held = self._redis.hvals(_UNACKED_KEY)
        taken = [delivery for text in held if (delivery := _read(read_delivery, str(text)))]
        messages = [message for text in waiting if (message := _read(read_message_text, str(text)))]
        messages += [each.message for each in taken if each.queue == queue_name(route)]
        return frozenset(JobId(message.headers.id) for message in messages)

    def count_waiting(self, routes: Sequence[Route]) -> int:
        """Return the number of messages that lie in the queues of these routes."""
        with translate_redis_errors():
            return sum(int(self._redis.llen(key)) for each in routes for key in message_lists(each))

    def put_off_redelivery(self, delivery_tag: str) -> None:
        """Keep a message that is still being worked on from being delivered again."""
        with translate_redis_errors():
            self._redis.zadd(_UNACKED_INDEX_KEY, {delivery_tag: time.time()}, xx=True)


def _read(read: Callable[[str], T], text: str) -> T | None:
    """Return what `read` makes of a message; None for a malformed one, which its worker will count."""
    try:
        return read(text)
    except ValueError:
        return None
