"""The Redis stores of webhooks, incoming and outgoing."""

from dataclasses import dataclass
from datetime import timedelta

import redis

from jobs.hooks.redis_book import RedisBook
from jobs.hooks.redis_outbox import RedisOutbox
from jobs.hooks.redis_receipts import RedisReceipts
from jobs.hooks.subscriptions import Subscription
from jobs.hooks.triggers import Trigger

TRIGGERS_KEY = "slipway:triggers"  # hash: record by name; beside it a sorted set of the names
SUBSCRIPTIONS_KEY = "slipway:subscriptions"  # hash: record by id; beside it a sorted set of the ids


@dataclass(frozen=True)
class HookStores:
    """Triggers, receipts of events, subscriptions, and the outbox of deliveries."""

    triggers: RedisBook[Trigger]
    receipts: RedisReceipts
    subscriptions: RedisBook[Subscription]
    outbox: RedisOutbox


def make_redis_hooks(client: redis.Redis, event_memory: timedelta) -> HookStores:
    """Return the stores on `client`, which the caller closes; events are remembered for `event_memory`."""
    return HookStores(
        triggers=RedisBook(client, TRIGGERS_KEY, Trigger),
        receipts=RedisReceipts(client, event_memory),
        subscriptions=RedisBook(client, SUBSCRIPTIONS_KEY, Subscription),
        outbox=RedisOutbox(client),
    )
