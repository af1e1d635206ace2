"""The outbox in Redis: events become deliveries, which are claimed, tried, and kept for a while.

An event enters the outbox in the same step as the job's change (jobs.stores.redis_store). It leaves in the
same step as its deliveries are written. One sender at a time claims a delivery until a certain time; if that
sender dies, the delivery becomes due for the others.
"""

import logging
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import redis
from pydantic import ValidationError

from jobs.events import OutboxEntry
from jobs.hooks.deliveries import Delivery, DeliveryState
from jobs.hooks.errors import DeliveryBusy, DeliveryNotFound
from jobs.hooks.pages import DeliveryPage
from jobs.hooks.subscriptions import Subscription, make_deliveries
from jobs.stores.malformed import MalformedData
from jobs.stores.redis_keys import OUTBOX_KEY
from jobs.stores.redis_store import translate_redis_errors

DELIVERY_KEY = "slipway:delivery:"  # + id: hash of record, claim (a count), claimed_until (Unix seconds)
INDEX_KEY = "slipway:deliveries:"  # + "all", state:<state>, job:<id>: sorted sets of ids, by the ids
DUE_KEY = "slipway:deliveries:due"  # sorted set: id by the Unix second it is due, or its claim ends
ENDED_KEY = "slipway:deliveries:ended"  # sorted set: id by the Unix second it ended
UNREADABLE_KEY = "slipway:outbox:unreadable"  # list: events of another version, for people to look at
GONE_KEY = "slipway:callback_gone:"  # + job id: its callback answered 410; expires

_CLOCK = "local t = redis.call('TIME') local now = t[1] + t[2] / 1000000\n"

# KEYS: outbox. ARGV: entry, prefix of deliveries, prefix of indices, due, Unix second, then id, record, job.
_FAN_OUT = """
if redis.call('LINDEX', KEYS[1], 0) ~= ARGV[1] then return 0 end
redis.call('LPOP', KEYS[1])
for i = 6, #ARGV, 3 do
  redis.call('HSET', ARGV[2] .. ARGV[i], 'record', ARGV[i + 1], 'claim', 0, 'claimed_until', 0)
  redis.call('ZADD', ARGV[3] .. 'all', 0, ARGV[i])
  redis.call('ZADD', ARGV[3] .. 'state:waiting', 0, ARGV[i])
  redis.call('ZADD', ARGV[3] .. 'job:' .. ARGV[i + 2], 0, ARGV[i])
  redis.call('ZADD', ARGV[4], ARGV[5], ARGV[i])
end
return 1
"""

# KEYS: outbox, unreadable. ARGV: entry.
_SET_ASIDE = """
if redis.call('LINDEX', KEYS[1], 0) ~= ARGV[1] then return 0 end
redis.call('RPUSH', KEYS[2], redis.call('LPOP', KEYS[1]))
return 1
"""

# KEYS: due. ARGV: prefix of deliveries, seconds.
_CLAIM = (
    _CLOCK
    + """
local id = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', now, 'LIMIT', 0, 1)[1]
if not id then return nil end
local record = redis.call('HGET', ARGV[1] .. id, 'record')
if not record then redis.call('ZREM', KEYS[1], id) return nil end
local until_ = string.format('%.6f', now + ARGV[2])
redis.call('ZADD', KEYS[1], until_, id)
redis.call('HSET', ARGV[1] .. id, 'claimed_until', until_)
return {record, redis.call('HINCRBY', ARGV[1] .. id, 'claim', 1), id}
"""
)

# KEYS: delivery, index of the old state, index of the new one, due, ended. ARGV: id, record, claim or "" (by
# hand), the old record, Unix second it is due or "", Unix second it ended or "". By hand, 2 while claimed.
_SAVE = (
    _CLOCK
    + """
if ARGV[3] ~= '' and redis.call('HGET', KEYS[1], 'claim') ~= ARGV[3] then return 0 end
if redis.call('HGET', KEYS[1], 'record') ~= ARGV[4] then return 0 end
if ARGV[3] == '' and tonumber(redis.call('HGET', KEYS[1], 'claimed_until')) > now then return 2 end
redis.call('HSET', KEYS[1], 'record', ARGV[2], 'claimed_until', 0)
redis.call('HINCRBY', KEYS[1], 'claim', 1)
redis.call('ZREM', KEYS[2], ARGV[1])
redis.call('ZADD', KEYS[3], 0, ARGV[1])
if ARGV[5] == '' then redis.call('ZREM', KEYS[4], ARGV[1])
else redis.call('ZADD', KEYS[4], ARGV[5], ARGV[1]) end
if ARGV[6] == '' then redis.call('ZREM', KEYS[5], ARGV[1])
else redis.call('ZADD', KEYS[5], ARGV[6], ARGV[1]) end
return 1
"""
)

_PRUNED_AT_ONCE = 500
_BUSY = 2

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Claim:
    """One sender's right to a delivery for a while."""

    delivery: Delivery
    number: int
    text: str  # the record's text when it was claimed


class RedisOutbox:
    """Events to send and their deliveries, by Redis's clock."""

    def __init__(self, client: redis.Redis) -> None:
        """Use `client`, which the caller closes."""
        self._redis = client
        self._malformed = MalformedData(client)
        self._fan_out = client.register_script(_FAN_OUT)
        self._set_aside = client.register_script(_SET_ASIDE)
        self._claim = client.register_script(_CLAIM)
        self._save = client.register_script(_SAVE)

    def now(self) -> datetime:
        with translate_redis_errors():
            seconds, microseconds = self._redis.time()
        return datetime.fromtimestamp(seconds + microseconds / 1e6, UTC)

    def next_entry(self) -> str | None:
        """Return the oldest event that has no deliveries yet, as text; None if there is none."""
        with translate_redis_errors():
            text = self._redis.lindex(OUTBOX_KEY, 0)
        return None if text is None else str(text)

    def fan_out(self, text: str, subscriptions: tuple[Subscription, ...]) -> bool:
        """Create the deliveries of the oldest event; return False if another sender has done so."""
        try:
            entry, now = OutboxEntry.model_validate_json(text), self.now()
        except ValidationError:
            log.exception("outbox_entry_unreadable")
            with translate_redis_errors():
                return bool(self._set_aside(keys=[OUTBOX_KEY, UNREADABLE_KEY], args=[text]))
        if entry.callback_url and self.is_gone(entry.event.data.job):
            entry = entry.model_copy(update={"callback_url": None})
        args = [text, DELIVERY_KEY, INDEX_KEY, DUE_KEY, str(now.timestamp())]
        for delivery in make_deliveries(entry, subscriptions, now):
            args += [delivery.id, delivery.model_dump_json(), entry.event.data.job]
        with translate_redis_errors():
            return bool(self._fan_out(keys=[OUTBOX_KEY], args=args))

    def claim(self, length: timedelta) -> Claim | None:
        """Claim the delivery that has been due the longest, for `length`; return None if none is due."""
        while True:
            with translate_redis_errors():
                found = self._claim(keys=[DUE_KEY], args=[DELIVERY_KEY, length.total_seconds()])
            if found is None:
                return None
            text, number, delivery_id = found
            if (delivery := self._parse(str(delivery_id), text)) is not None:
                return Claim(delivery, int(number), str(text))
            # Malformed, or of a newer program, which may claim it after `length`.

    def save_result(self, claim: Claim, new: Delivery) -> bool:
        """Save a claimed delivery after a try; return False if the claim has ended."""
        return self._write(claim.delivery, new, old_text=claim.text, claim=str(claim.number)) == 1

    def replay(self, delivery_id: str) -> Delivery:
        """Make the delivery due at once; DeliveryBusy while it is being sent."""
        while True:
            with translate_redis_errors():
                text = self._redis.hget(DELIVERY_KEY + delivery_id, "record")
            if text is None:
                raise DeliveryNotFound(delivery_id)
            if (old := self._parse(delivery_id, text)) is None:
                raise DeliveryNotFound(delivery_id)
            new = old.replay(self.now())
            done = self._write(old, new, old_text=str(text), claim="")
            if done == _BUSY:
                raise DeliveryBusy(delivery_id)
            if done:
                self._unmark_gone(old)
                return new

    def _unmark_gone(self, replayed: Delivery) -> None:
        """Let events be sent to a job's callback again after one was replayed by hand."""
        if replayed.subscription_id is None:
            with translate_redis_errors():
                self._redis.delete(GONE_KEY + replayed.event.data.job)

    def get(self, delivery_id: str) -> Delivery:
        found = self._read([delivery_id])
        if not found:
            raise DeliveryNotFound(delivery_id)
        return found[0]

    def page(
        self, *, limit: int, job: str | None, state: DeliveryState | None, before: str | None
    ) -> DeliveryPage:
        """Return up to `limit` deliveries older than `before`; optionally of one job, or in one state."""
        index = f"job:{job}" if job else f"state:{state}" if state else "all"
        newest = f"({before}" if before else "+"
        with translate_redis_errors():
            found = self._redis.zrevrangebylex(INDEX_KEY + index, newest, "-", 0, limit + 1)
        ids = [str(each) for each in found]
        shown = tuple(each for each in self._read(ids[:limit]) if state in (None, each.state))
        return DeliveryPage(shown, ids[limit - 1] if len(ids) > limit else None)

    def mark_gone(self, job: str, lifetime: timedelta) -> None:
        """Send no more events to the job's callback, which has answered 410."""
        with translate_redis_errors():
            self._redis.set(GONE_KEY + job, "410", px=lifetime)

    def is_gone(self, job: str) -> bool:
        with translate_redis_errors():
            return bool(self._redis.exists(GONE_KEY + job))

    def prune(self, keep: timedelta) -> int:
        """Remove deliveries that ended longer than `keep` ago; return how many."""
        with translate_redis_errors():
            oldest = (self.now() - keep).timestamp()
            ids = self._redis.zrangebyscore(ENDED_KEY, "-inf", oldest, 0, _PRUNED_AT_ONCE)
            old = self._read([str(each) for each in ids])
            self._forget({str(each) for each in ids} - {delivery.id for delivery in old})
            with self._redis.pipeline(transaction=True) as pipe:
                for delivery in old:
                    pipe.delete(DELIVERY_KEY + delivery.id)
                    job = f"job:{delivery.event.data.job}"
                    for index in ("all", f"state:{delivery.state}", job):
                        pipe.zrem(INDEX_KEY + index, delivery.id)
                    pipe.zrem(ENDED_KEY, delivery.id)
                pipe.execute()
        return len(old)

    def _write(self, old: Delivery, new: Delivery, *, old_text: str, claim: str) -> int:
        states = [f"{INDEX_KEY}state:{each.state}" for each in (old, new)]
        due = new.next_at.timestamp() if new.next_at else ""
        ended = new.ended_at.timestamp() if new.ended_at else ""
        with translate_redis_errors():
            done = self._save(
                keys=[DELIVERY_KEY + old.id, *states, DUE_KEY, ENDED_KEY],
                args=[old.id, new.model_dump_json(), claim, old_text, due, ended],
            )
        return int(done)

    def _read(self, ids: list[str]) -> list[Delivery]:
        with translate_redis_errors(), self._redis.pipeline(transaction=False) as pipe:
            for delivery_id in ids:
                pipe.hget(DELIVERY_KEY + delivery_id, "record")
            texts = pipe.execute()
        known = zip(ids, texts, strict=True)
        parsed = [self._parse(each, text) for each, text in known if text is not None]
        return [delivery for delivery in parsed if delivery]

    def _parse(self, delivery_id: str, text: object) -> Delivery | None:
        return self._malformed.parse(Delivery, DELIVERY_KEY + delivery_id, text)

    def _forget(self, ids: Iterable[str]) -> None:
        """Remove deliveries that cannot be read, so that their job is unknown."""
        with translate_redis_errors(), self._redis.pipeline(transaction=True) as pipe:
            for delivery_id in ids:
                pipe.delete(DELIVERY_KEY + delivery_id)
                for key in ("all", *(f"state:{state}" for state in DeliveryState)):
                    pipe.zrem(INDEX_KEY + key, delivery_id)
                pipe.zrem(DUE_KEY, delivery_id)
                pipe.zrem(ENDED_KEY, delivery_id)
            pipe.execute()
