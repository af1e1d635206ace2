"""Celery's connection to Redis for workers: it drops malformed messages, over which Celery would end."""

import ssl
from typing import Any

from celery import Celery
from kombu.transport import redis as kombu_redis
from kombu.transport.virtual import Empty

from jobs.celery_messages import read_delivery, read_message
from jobs.celery_queue import QUEUE
from jobs.stores.malformed import MalformedData

SET_ASIDE_KEY = "slipway:set_aside:"  # + key that was no queue

# Errors of kombu when it reads something that is no message; those of the connection are none of these.
_UNREADABLE = (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError)


class CheckedQoS(kombu_redis.QoS):
    """Messages that were taken and not acknowledged."""

    def restore_by_tag(self, tag: str, client: Any = None, leftmost: bool = False) -> None:
        """Put a message back into its queue, or forget it if it is malformed."""
        with self.channel.conn_or_acquire(client) as connected:
            held = connected.hget(self.unacked_key, tag)
            try:
                if held is not None:
                    read_delivery(held)
            except ValueError as error:
                self._remove_from_indices(tag).execute()  # type: ignore[no-untyped-call]  # kombu is not typed
                self.channel.connection.malformed.drop("message", self.unacked_key, held, error)
                return
        super().restore_by_tag(tag, client, leftmost)  # type: ignore[no-untyped-call]  # kombu is not typed


class CheckedChannel(kombu_redis.Channel):
    """A channel that survives text which is no JSON, and keys which are no queues."""

    QoS = CheckedQoS

    def _brpop_read(self, **options: Any) -> Any:
        try:
            return super()._brpop_read(**options)  # type: ignore[no-untyped-call]  # kombu is not typed
        except _UNREADABLE as error:  # Redis no longer has it
            self.connection.malformed.drop("message", QUEUE, _text_of(error), error)
        except self.ResponseError as error:
            if "WRONGTYPE" not in str(error):
                raise
            self._set_wrong_keys_aside()
        raise Empty

    def _receive(self) -> Any:
        try:
            return super()._receive()  # type: ignore[no-untyped-call]  # kombu is not typed
        except _UNREADABLE as error:
            self.connection.malformed.drop("control", "celery.pidbox", _text_of(error), error)
            return None

    def _set_wrong_keys_aside(self) -> None:
        """Rename keys of the queue that hold something else; the sweep enqueues lost jobs again."""
        kinds = {self.unacked_key: "hash", self.unacked_index_key: "zset"}
        for queue in self.active_queues:
            for step in self.priority_steps:
                kinds[self._q_for_pri(queue, step)] = "list"  # type: ignore[no-untyped-call]  # kombu is not typed
        with self.conn_or_acquire() as client:
            for key, kind in kinds.items():
                found = client.type(key).decode()
                if found not in (kind, "none"):
                    client.rename(key, SET_ASIDE_KEY + key)
                    self.connection.malformed.drop("key", key, f"a {found} where a {kind} belongs")


class CheckedTransport(kombu_redis.Transport):
    """A transport whose callbacks see only messages that are whole."""

    Channel = CheckedChannel
    malformed: MalformedData

    def _deliver(self, message: object, queue: str) -> None:
        if queue and queue.startswith(QUEUE):
            try:
                message = read_message(message).parts
            except ValueError as error:
                self.malformed.drop("message", queue, message, error)
                return
        super()._deliver(message, queue)  # type: ignore[no-untyped-call]  # kombu is not typed


def use_transport(app: Celery, malformed: MalformedData) -> None:
    """Let a worker's app drop malformed messages and note them in `malformed`."""
    noting = {"malformed": malformed}
    app.conf.broker_transport = type("CheckedTransport", (CheckedTransport,), noting)
    if str(app.conf.broker_url).startswith("rediss:") and not app.conf.broker_use_ssl:
        app.conf.broker_use_ssl = {"ssl_cert_reqs": ssl.CERT_NONE}  # as kombu's own transport has it


def _text_of(error: Exception) -> object:
    """Return the text that could not be read, where the error holds it."""
    return getattr(error, "doc", None) or getattr(error, "object", None) or str(error)
