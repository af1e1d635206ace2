"""The queue on Celery and Redis: its settings, the task's name, and looking into the broker."""

import json
import time
from datetime import timedelta

import redis
from celery import Celery
from kombu.exceptions import OperationalError

from jobs.errors import StoreUnavailable
from jobs.ids import JobId
from jobs.redis_store import reaching
from jobs.request import Priority

RUN_EXPORT = "slipway.run_export"
QUEUE = "slipway.exports"

# A message is delivered again this long after its worker last touched it (see `put_off_redelivery`).
VISIBILITY_TIMEOUT = timedelta(minutes=3)

# A worker asks for a message of the first step that has any; each is a list of its own in Redis, the
# first under the queue's plain name.
_STEPS = {Priority.HIGH: 0, Priority.NORMAL: 3, Priority.LOW: 6}
_SEPARATOR = ":"

# kombu's own keys.
_UNACKED_KEY = "unacked"
_UNACKED_INDEX_KEY = "unacked_index"


def make_celery(redis_url: str) -> Celery:
    """The Celery app of both programs. The job store knows the truth; a lost or repeated id is harmless."""
    app = Celery("slipway", broker=redis_url)
    app.conf.update(
        accept_content=["json"],
        broker_connection_max_retries=None,  # Redis may be away for as long as it likes
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
        task_reject_on_worker_lost=False,  # a crash that repeats would repeat for ever
        task_serializer="json",
        task_store_errors_even_if_ignored=False,
        worker_concurrency=1,  # compiling uses every core
        worker_disable_prefetch=True,
        worker_hijack_root_logger=False,
        worker_pool="threads",  # the work is in child processes; see worker.supervisor
        worker_prefetch_multiplier=1,
        worker_send_task_events=False,
    )
    return app


def message_lists() -> tuple[str, ...]:
    """The lists that hold the waiting messages, in the order workers look at them."""
    return tuple(f"{QUEUE}{_SEPARATOR}{step}" if step else QUEUE for step in sorted(_STEPS.values()))


class CeleryQueue:
    """Messages through Celery on Redis. A message's id is its job's, so that it can be found."""

    def __init__(self, app: Celery, client: redis.Redis) -> None:
        """Publish through `app`; look into its broker with `client`."""
        self._app = app
        self._redis = client

    def enqueue(self, job_id: JobId, priority: Priority = Priority.NORMAL) -> None:
        step = _STEPS[priority]
        try:
            self._app.send_task(
                RUN_EXPORT, args=[job_id], task_id=job_id, queue=QUEUE, priority=step, retry=False
            )
        except OperationalError as error:
            raise StoreUnavailable(error) from error

    def undelivered(self) -> frozenset[JobId]:
        with reaching():
            waiting = [text for key in message_lists() for text in self._redis.lrange(key, 0, -1)]
            taken = self._redis.hvals(_UNACKED_KEY)
        messages = [json.loads(text) for text in waiting] + [json.loads(text)[0] for text in taken]
        return frozenset(JobId(message["headers"]["id"]) for message in messages)

    def put_off_redelivery(self, delivery_tag: str) -> None:
        """Keep a message that is still being worked on from being delivered again."""
        with reaching():
            self._redis.zadd(_UNACKED_INDEX_KEY, {delivery_tag: time.time()}, xx=True)
