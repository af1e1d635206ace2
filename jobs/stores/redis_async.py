"""Jobs added to Redis on an event loop, so that no thread waits for the answer."""

import asyncio
from collections.abc import Sequence

import redis.asyncio
from redis.asyncio.retry import Retry

from jobs.ids import JobId
from jobs.stores.redis_adding import AddCall
from jobs.stores.redis_scripts import ADD
from jobs.stores.redis_store import OPTIONS, PAUSES, TRIES_AGAIN, translate_redis_errors

_AT_ONCE = 40  # calls, each with a connection: as many as threads of the API would wait


class AsyncAdder:
    """Adds jobs to the same Redis as `RedisJobStore`, and with the same answers and errors."""

    def __init__(self, url: str) -> None:
        """Connect to the Redis at `url` when a job is added; close the adder on the same event loop."""
        tries_again = TRIES_AGAIN - 1  # the client tries after `_call` has tried
        self._redis = redis.asyncio.Redis.from_url(url, **OPTIONS, retry=Retry(PAUSES, tries_again))
        self._add = self._redis.register_script(ADD)
        self._idle: list[redis.asyncio.Connection] = []
        self._free = asyncio.Semaphore(_AT_ONCE)

    async def add(self, call: AddCall) -> JobId | None:
        """Add a job as `JobRecords.add` does."""
        keys, args = call.write_keys(), call.write_args()
        async with self._free:
            with translate_redis_errors():
                try:
                    done = await self._call(keys, args)
                except (redis.ConnectionError, redis.TimeoutError, redis.exceptions.NoScriptError):
                    done = await self._add(keys=keys, args=args)
        return call.read_reply(done)

    async def _call(self, keys: Sequence[str], args: Sequence[str | int]) -> object:
        """Call the script once, on a connection that is open: the client's own way takes half as long again.

        A second call with the same job does no harm, so that one that broke off may be made again.
        """
        pool = self._redis.connection_pool
        connection = self._idle.pop() if self._idle else await pool.get_connection()  # type: ignore[no-untyped-call] # by redis
        try:
            await connection.send_command(
                "EVALSHA", self._add.sha, len(keys), *keys, *args, check_health=False
            )
            done: object = await connection.read_response()
        except BaseException:
            await pool.release(connection)  # it is closed, or has its whole answer
            raise
        self._idle.append(connection)
        return done

    async def close(self) -> None:
        """Close the connections."""
        for connection in self._idle:
            await self._redis.connection_pool.release(connection)
        self._idle.clear()
        await self._redis.aclose()
