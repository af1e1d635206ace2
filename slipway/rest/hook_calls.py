"""The REST calls about webhooks as values: triggers, subscriptions and deliveries."""

from urllib.parse import quote

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
from slipway.rest.calls import Call, body_of, reads, without_none
from slipway.rest.names import DeliveryState
from slipway.rest.requests import Body, SubscriptionRequest


def triggers(*, limit: int, cursor: str | None = None) -> Call[TriggerList]:
    query = without_none(limit=str(limit), cursor=cursor)
    return Call(method="GET", path="/triggers", query=query, read=reads(TriggerList))


def trigger(name: str) -> Call[TriggerView]:
    return Call(method="GET", path=_trigger(name), read=reads(TriggerView))


def put_trigger(name: str, rule: Body) -> Call[Trigger]:
    body = body_of(rule)
    return Call(method="PUT", path=_trigger(name), body=body, read=reads(Trigger))


def delete_trigger(name: str) -> Call[None]:
    return Call(method="DELETE", path=_trigger(name), read=lambda answer: None)


def test_trigger(name: str, event: Body) -> Call[TriggerTrial]:
    body = body_of(event)
    return Call(method="POST", path=f"{_trigger(name)}/test", body=body, read=reads(TriggerTrial))


def subscriptions(*, limit: int, cursor: str | None = None) -> Call[SubscriptionList]:
    query = without_none(limit=str(limit), cursor=cursor)
    return Call(method="GET", path="/subscriptions", query=query, read=reads(SubscriptionList))


def subscription(subscription_id: str) -> Call[SubscriptionView]:
    return Call(method="GET", path=_subscription(subscription_id), read=reads(SubscriptionView))


def subscribe(request: SubscriptionRequest | Body) -> Call[SubscriptionMade]:
    body = body_of(request)
    return Call(method="POST", path="/subscriptions", body=body, read=reads(SubscriptionMade))


def replace_subscription(subscription_id: str, request: SubscriptionRequest | Body) -> Call[SubscriptionView]:
    body = body_of(request)
    return Call(method="PUT", path=_subscription(subscription_id), body=body, read=reads(SubscriptionView))


def unsubscribe(subscription_id: str) -> Call[None]:
    return Call(method="DELETE", path=_subscription(subscription_id), read=lambda answer: None)


def deliveries(
    *,
    limit: int,
    job_id: str | None = None,
    state: DeliveryState | None = None,
    cursor: str | None = None,
) -> Call[DeliveryList]:
    query = without_none(limit=str(limit), job=job_id, state=state, cursor=cursor)
    return Call(method="GET", path="/deliveries", query=query, read=reads(DeliveryList))


def delivery(delivery_id: str) -> Call[DeliveryView]:
    return Call(method="GET", path=_delivery(delivery_id), read=reads(DeliveryView))


def replay(delivery_id: str) -> Call[DeliveryView]:
    return Call(method="POST", path=f"{_delivery(delivery_id)}/replay", read=reads(DeliveryView))


def _trigger(name: str) -> str:
    return f"/triggers/{quote(name, safe='')}"


def _subscription(subscription_id: str) -> str:
    return f"/subscriptions/{quote(subscription_id, safe='')}"


def _delivery(delivery_id: str) -> str:
    return f"/deliveries/{quote(delivery_id, safe='')}"
