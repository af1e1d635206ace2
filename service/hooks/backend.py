"""The stores and limits that the routes of webhooks use, and the threads that send callbacks."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Request

from jobs.control.control import JobControl, Owner
from jobs.hooks.deliveries import Delivery
from jobs.hooks.errors import DeliveryUnsendable
from jobs.hooks.intake import Intake
from jobs.hooks.redis_book import RedisBook
from jobs.hooks.redis_outbox import RedisOutbox
from jobs.hooks.stores import HookStores
from jobs.hooks.subscriptions import Subscription
from jobs.hooks.triggers import Trigger
from jobs.ids import JobId
from jobs.model import Job
from jobs.request import ExportRequest
from service.access.callers import Caller, Scope
from service.audit import record
from service.hooks.dispatcher import Dispatcher, Senders
from service.hooks.poster import Poster
from service.hooks.settings import HookSettings


@dataclass(frozen=True, kw_only=True)
class HookBackend:
    """Triggers, subscriptions and deliveries, created once per application."""

    settings: HookSettings
    triggers: RedisBook[Trigger]
    subscriptions: RedisBook[Subscription]
    outbox: RedisOutbox
    intake: Intake

    def replay(self, delivery_id: str) -> Delivery:
        """Make a delivery due at once, whatever its state.

        Raises:
            DeliveryUnsendable: its subscription has been deleted, and with it the secret to sign it with.
        """
        receiver = self.outbox.get(delivery_id).subscription_id
        if receiver is not None and self.subscriptions.get(receiver) is None:
            raise DeliveryUnsendable(delivery_id)
        return self.outbox.replay(delivery_id)


@contextmanager
def running_hooks(stores: HookStores, jobs: JobControl, settings: HookSettings) -> Iterator[HookBackend]:
    """Send callbacks in the background as long as the block lasts."""

    def submit(trigger: Trigger, request: ExportRequest, job_id: JobId) -> Job:
        owner = Owner(f"trigger:{trigger.name}", uris=trigger.uris)
        own_jobs = jobs.seen_within(trigger.uris)
        job = own_jobs.submit(request.spec, request.options, owner, force=request.force, job_id=job_id)
        record(Caller(owner.name, frozenset({Scope.SUBMIT}), owner), "submit", job.id)
        return job

    dispatcher = Dispatcher(
        outbox=stores.outbox,
        subscriptions=stores.subscriptions,
        poster=Poster(settings.callback_networks, settings.callback_timeout),
        settings=settings,
    )
    senders = Senders(dispatcher)
    senders.start()
    try:
        yield HookBackend(
            settings=settings,
            triggers=stores.triggers,
            subscriptions=stores.subscriptions,
            outbox=stores.outbox,
            intake=Intake(stores.triggers, stores.receipts, submit, stores.outbox.now),
        )
    finally:
        senders.stop()


async def _hooks(request: Request) -> HookBackend:
    backend: HookBackend = request.app.state.hooks
    return backend


async def _settings(request: Request) -> HookSettings:
    settings: HookSettings = request.app.state.hook_settings
    return settings


HookLimits = Annotated[HookSettings, Depends(_settings)]


Hooks = Annotated[HookBackend, Depends(_hooks)]
