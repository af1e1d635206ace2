"""Triggers, subscriptions and deliveries as the caller of a request may see them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends

from exporter.storage.uris import NamedUri, UriRules
from jobs.control.control import JobControl
from jobs.errors import JobNotFound, RecordUnreadable
from jobs.hooks.deliveries import Delivery, DeliveryState
from jobs.hooks.errors import DeliveryNotFound, SubscriptionNotFound, TriggerNotFound
from jobs.hooks.pages import BookPage, DeliveryPage
from jobs.hooks.subscriptions import Subscription
from jobs.hooks.triggers import Trigger
from jobs.stores.visible_jobs import find_visible
from service.access.callers import Caller
from service.access.guard import Reader
from service.dependencies import Jobs
from service.hooks.backend import HookBackend, Hooks


@dataclass(frozen=True, kw_only=True)
class VisibleHooks:
    """The hooks that a caller sees.

    A bound caller sees the triggers that were put by keys within its own prefixes, and what was sent to the
    `callback_url` of its jobs. Subscriptions receive the events of all jobs, so it sees none of them.
    """

    hooks: HookBackend
    jobs: JobControl  # as the caller sees them
    caller: Caller

    def list_triggers(self, *, limit: int, after: str | None) -> BookPage[Trigger]:
        if self.caller.sees_all:
            return self.hooks.triggers.page(limit=limit, after=after)
        seen = [each for each in self.hooks.triggers.all() if self._shows(each) and each.name > (after or "")]
        return BookPage(tuple(seen[:limit]), seen[limit - 1].name if len(seen) > limit else None)

    def get_trigger(self, name: str) -> Trigger:
        trigger = self.hooks.triggers.get(name)
        if trigger is None or not self._shows(trigger):
            raise TriggerNotFound(name)
        return trigger

    def list_subscriptions(self, *, limit: int, after: str | None) -> BookPage[Subscription]:
        if self.caller.sees_all:
            return self.hooks.subscriptions.page(limit=limit, after=after)
        return BookPage((), None)

    def get_subscription(self, subscription_id: str) -> Subscription:
        subscription = self.hooks.subscriptions.get(subscription_id)
        if subscription is None or not self.caller.sees_all:
            raise SubscriptionNotFound(subscription_id)
        return subscription

    def list_deliveries(
        self, *, limit: int, job: str | None, state: DeliveryState | None, before: str | None
    ) -> DeliveryPage:
        outbox = self.hooks.outbox
        if self.caller.sees_all:
            return outbox.page(limit=limit, job=job, state=state, before=before)
        if job is not None and not self._sees_job(job):
            return DeliveryPage((), None)

        def read(count: int, at: str | None) -> tuple[Sequence[Delivery], str | None]:
            page = outbox.page(limit=count, job=job, state=state, before=at)
            return page.deliveries, page.next

        return DeliveryPage(*find_visible(read, self._shows_delivery, limit=limit, before=before))

    def get_delivery(self, delivery_id: str) -> Delivery:
        delivery = self.hooks.outbox.get(delivery_id)
        if not self.caller.sees_all and not self._shows_delivery(delivery):
            raise DeliveryNotFound(delivery_id)
        return delivery

    def _shows(self, trigger: Trigger) -> bool:
        return self.caller.sees_all or _lies_within(trigger.uris, self.caller.sees)

    def _shows_delivery(self, delivery: Delivery) -> bool:
        return delivery.subscription_id is None and self._sees_job(delivery.event.data.job)

    def _sees_job(self, job_id: str) -> bool:
        try:
            self.jobs.get(job_id)
        except (JobNotFound, RecordUnreadable):
            return False
        return True


def _lies_within(own: UriRules, rules: UriRules) -> bool:
    """Return whether all that `own` allows is allowed by `rules`."""
    if (own.inputs is None and rules.inputs is not None) or (
        own.outputs is None and rules.outputs is not None
    ):
        return False
    inputs = (NamedUri(field="uris", uri=prefix, is_output=False) for prefix in own.inputs or ())
    outputs = (NamedUri(field="uris", uri=prefix, is_output=True) for prefix in own.outputs or ())
    return all(rules.allow(prefix) for prefix in (*inputs, *outputs))


async def _visible_hooks(hooks: Hooks, jobs: Jobs, caller: Reader) -> VisibleHooks:
    return VisibleHooks(hooks=hooks, jobs=jobs, caller=caller)


SeenHooks = Annotated[VisibleHooks, Depends(_visible_hooks)]
