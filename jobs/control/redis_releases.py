"""Releases in Redis: a sorted set of each model's jobs, and lists of its promoted releases and promotions."""

import redis

from jobs.control.promotions import MOST_PROMOTIONS, PromotionNote
from jobs.control.releases import ModelPage, Release
from jobs.ids import JobId
from jobs.stores.malformed import MalformedData
from jobs.stores.redis_keys import MODELS_KEY, RELEASES_KEY
from jobs.stores.redis_store import translate_redis_errors

PROMOTED_KEY = "slipway:promoted:"  # + model: list of releases as JSON, the promoted one first
# + model: list of promotions as JSON, the latest first; apart from the releases, for their older readers
PROMOTIONS_KEY = "slipway:promotions:"

_HISTORY = 100

# KEYS: promoted, promotions. ARGV: release, its job, most to keep, promotion, most of these to keep.
_PROMOTE = """
local now = redis.call('LINDEX', KEYS[1], 0)
local read, release = pcall(cjson.decode, now or '')
if read and type(release) == 'table' and release['job_id'] == ARGV[2] then return 0 end
redis.call('LPUSH', KEYS[1], ARGV[1])
redis.call('LTRIM', KEYS[1], 0, ARGV[3] - 1)
redis.call('LPUSH', KEYS[2], ARGV[4])
redis.call('LTRIM', KEYS[2], 0, ARGV[5] - 1)
return 1
"""

# KEYS: promoted, promotions. ARGV: promotion, which lacks its job, most to keep, promoted job (empty: any).
_ROLL_BACK = """
if ARGV[3] ~= '' then
  local read, release = pcall(cjson.decode, redis.call('LINDEX', KEYS[1], 0) or '')
  if not (read and type(release) == 'table' and release['job_id'] == ARGV[3]) then return nil end
end
if redis.call('LLEN', KEYS[1]) < 2 then return nil end
redis.call('LPOP', KEYS[1])
local now = redis.call('LINDEX', KEYS[1], 0)
local read, release = pcall(cjson.decode, now)
local noted = cjson.decode(ARGV[1])
noted['job_id'] = read and type(release) == 'table' and release['job_id'] or ''
redis.call('LPUSH', KEYS[2], cjson.encode(noted))
redis.call('LTRIM', KEYS[2], 0, ARGV[2] - 1)
return now
"""


class RedisPointers:
    """Release pointers that change in one step of Redis."""

    def __init__(self, client: redis.Redis) -> None:
        """Use `client`, which the caller closes."""
        self._redis = client
        self._malformed = MalformedData(client)
        self._promote = client.register_script(_PROMOTE)
        self._roll_back = client.register_script(_ROLL_BACK)

    def models(self, *, limit: int, after: str | None) -> ModelPage:
        first = f"({after}" if after else "-"
        with translate_redis_errors():
            found = self._redis.zrangebylex(MODELS_KEY, first, "+", 0, limit + 1)
        names = [str(name) for name in found]
        return ModelPage(tuple(names[:limit]), names[limit - 1] if len(names) > limit else None)

    def model_at(self, position: int) -> str | None:
        with translate_redis_errors():
            found = self._redis.zrange(MODELS_KEY, position, position)
        return next((str(name) for name in found), None)

    def jobs(self, model: str) -> tuple[JobId, ...]:
        with translate_redis_errors():
            found = self._redis.zrevrangebylex(RELEASES_KEY + model, "+", "-")
        return tuple(JobId(str(each)) for each in found)

    def get_promoted(self, model: str) -> Release | None:
        with translate_redis_errors():
            found = self._redis.lindex(PROMOTED_KEY + model, 0)
        return None if found is None else self._malformed.parse(Release, PROMOTED_KEY + model, found)

    def has_promoted(self, model: str) -> bool:
        with translate_redis_errors():
            return bool(self._redis.exists(PROMOTED_KEY + model))

    def get_previous(self, model: str) -> Release | None:
        with translate_redis_errors():
            found = self._redis.lindex(PROMOTED_KEY + model, 1)
        return None if found is None else self._malformed.parse(Release, PROMOTED_KEY + model, found)

    def promotions(self, model: str) -> tuple[PromotionNote, ...]:
        with translate_redis_errors():
            found = self._redis.lrange(PROMOTIONS_KEY + model, 0, MOST_PROMOTIONS - 1)
        parsed = (self._malformed.parse(PromotionNote, PROMOTIONS_KEY + model, each) for each in found)
        return tuple(each for each in parsed if each)

    def promote(self, release: Release, noted: PromotionNote) -> None:
        args: list[str | int] = [release.model_dump_json(), release.job_id, _HISTORY]
        args += [noted.model_dump_json(), MOST_PROMOTIONS]
        with translate_redis_errors():
            self._promote(keys=_keys_of(release.model), args=args)

    def roll_back(self, model: str, noted: PromotionNote, expected: JobId | None = None) -> Release | None:
        args: list[str | int] = [noted.model_dump_json(), MOST_PROMOTIONS, expected or ""]
        with translate_redis_errors():
            found = self._roll_back(keys=_keys_of(model), args=args)
        return None if found is None else self._malformed.parse(Release, PROMOTED_KEY + model, found)


def _keys_of(model: str) -> list[str]:
    return [PROMOTED_KEY + model, PROMOTIONS_KEY + model]
