"""The pages of webhooks: triggers, subscriptions, and deliveries with their tries."""

import json
from dataclasses import dataclass
from typing import ClassVar
from urllib.parse import urlencode

from jobs.hooks.deliveries import Delivery, DeliveryState
from jobs.hooks.receipts import Noted
from jobs.hooks.triggers import Trigger
from service.access.callers import Scope
from service.dashboard.render import Page
from service.hooks.schemas import SubscriptionView

_TEMPLATE_LEFT_OUT = {"config"}  # a text of many lines, which is said to be there


@dataclass(frozen=True, kw_only=True)
class HooksPage(Page):
    """A page of webhooks, with links to the others."""

    here: ClassVar[str] = "hooks"
    every: ClassVar[int] = 5
    tab: ClassVar[str]
    tabs: ClassVar[tuple[tuple[str, str], ...]] = (
        ("triggers", "Triggers"),
        ("subscriptions", "Subscriptions"),
        ("deliveries", "Deliveries"),
    )

    @property
    def may_change(self) -> bool:
        return self.reader is not None and self.reader.may(Scope.ADMIN)

    @property
    def sees_all(self) -> bool:
        return self.reader is None or self.reader.sees_all


@dataclass(frozen=True, kw_only=True)
class TriggersPage(HooksPage):
    """The triggers by name."""

    template: ClassVar[str] = "triggers.html"
    tab: ClassVar[str] = "triggers"

    triggers: tuple[Trigger, ...]
    next: str | None
    is_first: bool


@dataclass(frozen=True, kw_only=True)
class TriggerPage(HooksPage):
    """One trigger: its conditions, the export that it starts, and its results for the latest events."""

    template: ClassVar[str] = "trigger.html"
    tab: ClassVar[str] = "triggers"

    trigger: Trigger
    latest: tuple[Noted, ...]

    @property
    def request(self) -> tuple[tuple[str, str], ...]:
        """The fields of the export's template that are set, each as text."""
        template = self.trigger.template
        fields = template.model_dump(mode="json", exclude_defaults=True, exclude=_TEMPLATE_LEFT_OUT)
        if template.config is not None:
            fields["config"] = f"given inline, {len(template.config.encode()):,} bytes"
        return tuple((name, _write(value)) for name, value in sorted(fields.items()))


@dataclass(frozen=True, kw_only=True)
class SubscriptionsPage(HooksPage):
    """The subscriptions, oldest first, without their secrets."""

    template: ClassVar[str] = "subscriptions.html"
    tab: ClassVar[str] = "subscriptions"

    subscriptions: tuple[SubscriptionView, ...]
    next: str | None
    is_first: bool


@dataclass(frozen=True, kw_only=True)
class DeliveriesPage(HooksPage):
    """The deliveries, newest first, of one job or all, in one state or any."""

    template: ClassVar[str] = "deliveries.html"
    tab: ClassVar[str] = "deliveries"

    deliveries: tuple[Delivery, ...]
    next: str | None
    is_first: bool
    job: str | None
    state: DeliveryState | None

    @property
    def states(self) -> tuple[tuple[str, str], ...]:
        """The states to choose from, each with the address of its list."""
        every = ("all", self._address(state=None))
        return every, *((state, self._address(state=state)) for state in DeliveryState)

    @property
    def chosen(self) -> str:
        return self.state or "all"

    @property
    def newest(self) -> str:
        return self._address(state=self.state)

    @property
    def older(self) -> str | None:
        return self._address(state=self.state, before=self.next) if self.next else None

    def _address(self, *, state: DeliveryState | None, before: str | None = None) -> str:
        given = {"job": self.job, "state": state, "before": before}
        query = urlencode({name: value for name, value in given.items() if value})
        return f"/pages/deliveries?{query}" if query else "/pages/deliveries"


@dataclass(frozen=True, kw_only=True)
class DeliveryDetailsPage(HooksPage):
    """One delivery with its latest tries."""

    template: ClassVar[str] = "delivery.html"
    tab: ClassVar[str] = "deliveries"
    every: ClassVar[int] = 2

    delivery: Delivery


def _write(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)
