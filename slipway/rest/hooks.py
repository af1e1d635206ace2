"""The methods of both clients about webhooks: triggers, subscriptions and deliveries."""

from abc import ABC, abstractmethod
from typing import TypeVar

from slipway.rest import hook_calls
from slipway.rest.answers import (
    DeliveryList,
    DeliveryView,
    SubscriptionList,
    SubscriptionMade,
    SubscriptionView,
    Trigger,
    TriggerList,
    TriggerTrial,
    TriggerView,
)
from slipway.rest.calls import Call
from slipway.rest.names import DeliveryState
from slipway.rest.requests import Body, SubscriptionRequest

Result = TypeVar("Result")


class HookMethods(ABC):
    """The synchronous ones."""

    @abstractmethod
    def _send(self, call: Call[Result]) -> Result: ...

    def triggers(self, *, limit: int = 20, cursor: str | None = None) -> TriggerList:
        return self._send(hook_calls.triggers(limit=limit, cursor=cursor))

    def trigger(self, name: str) -> TriggerView:
        """Return a trigger with its results for the latest events."""
        return self._send(hook_calls.trigger(name))

    def put_trigger(self, name: str, rule: Body) -> Trigger:
        """Create or replace a trigger."""
        return self._send(hook_calls.put_trigger(name, rule))

    def delete_trigger(self, name: str) -> None:
        self._send(hook_calls.delete_trigger(name))

    def test_trigger(self, name: str, event: Body) -> TriggerTrial:
        """Return what the event would do, without doing it."""
        return self._send(hook_calls.test_trigger(name, event))

    def subscriptions(self, *, limit: int = 20, cursor: str | None = None) -> SubscriptionList:
        return self._send(hook_calls.subscriptions(limit=limit, cursor=cursor))

    def subscription(self, subscription_id: str) -> SubscriptionView:
        return self._send(hook_calls.subscription(subscription_id))

    def subscribe(self, request: SubscriptionRequest | Body) -> SubscriptionMade:
        """Send every job's events to a URL; the answer alone shows the secret."""
        return self._send(hook_calls.subscribe(request))

    def replace_subscription(
        self, subscription_id: str, request: SubscriptionRequest | Body
    ) -> SubscriptionView:
        return self._send(hook_calls.replace_subscription(subscription_id, request))

    def unsubscribe(self, subscription_id: str) -> None:
        self._send(hook_calls.unsubscribe(subscription_id))

    def deliveries(
        self,
        *,
        limit: int = 20,
        job_id: str | None = None,
        state: DeliveryState | None = None,
        cursor: str | None = None,
    ) -> DeliveryList:
        found = hook_calls.deliveries(limit=limit, job_id=job_id, state=state, cursor=cursor)
        return self._send(found)

    def delivery(self, delivery_id: str) -> DeliveryView:
        return self._send(hook_calls.delivery(delivery_id))

    def replay(self, delivery_id: str) -> DeliveryView:
        """Send a delivery once more."""
        return self._send(hook_calls.replay(delivery_id))


class AsyncHookMethods(ABC):
    """The asynchronous ones."""

    @abstractmethod
    async def _send(self, call: Call[Result]) -> Result: ...

    async def triggers(self, *, limit: int = 20, cursor: str | None = None) -> TriggerList:
        return await self._send(hook_calls.triggers(limit=limit, cursor=cursor))

    async def trigger(self, name: str) -> TriggerView:
        """Return a trigger with its results for the latest events."""
        return await self._send(hook_calls.trigger(name))

    async def put_trigger(self, name: str, rule: Body) -> Trigger:
        """Create or replace a trigger."""
        return await self._send(hook_calls.put_trigger(name, rule))

    async def delete_trigger(self, name: str) -> None:
        await self._send(hook_calls.delete_trigger(name))

    async def test_trigger(self, name: str, event: Body) -> TriggerTrial:
        """Return what the event would do, without doing it."""
        return await self._send(hook_calls.test_trigger(name, event))

    async def subscriptions(self, *, limit: int = 20, cursor: str | None = None) -> SubscriptionList:
        return await self._send(hook_calls.subscriptions(limit=limit, cursor=cursor))

    async def subscription(self, subscription_id: str) -> SubscriptionView:
        return await self._send(hook_calls.subscription(subscription_id))

    async def subscribe(self, request: SubscriptionRequest | Body) -> SubscriptionMade:
        """Send every job's events to a URL; the answer alone shows the secret."""
        return await self._send(hook_calls.subscribe(request))

    async def replace_subscription(
        self, subscription_id: str, request: SubscriptionRequest | Body
    ) -> SubscriptionView:
        return await self._send(hook_calls.replace_subscription(subscription_id, request))

    async def unsubscribe(self, subscription_id: str) -> None:
        await self._send(hook_calls.unsubscribe(subscription_id))

    async def deliveries(
        self,
        *,
        limit: int = 20,
        job_id: str | None = None,
        state: DeliveryState | None = None,
        cursor: str | None = None,
    ) -> DeliveryList:
        found = hook_calls.deliveries(limit=limit, job_id=job_id, state=state, cursor=cursor)
        return await self._send(found)

    async def delivery(self, delivery_id: str) -> DeliveryView:
        return await self._send(hook_calls.delivery(delivery_id))

    async def replay(self, delivery_id: str) -> DeliveryView:
        """Send a delivery once more."""
        return await self._send(hook_calls.replay(delivery_id))
