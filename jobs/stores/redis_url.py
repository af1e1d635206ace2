"""The type of settings that hold Redis's URL, which is checked when settings are read."""

from typing import Annotated

from pydantic import AfterValidator


def _require_redis_url(url: str) -> str:
    from redis.connection import parse_url  # `slipway export` reads a worker's settings without redis

    parse_url(url)  # type: ignore[no-untyped-call]  # not typed by redis; raises ValueError
    return url


RedisUrl = Annotated[str, AfterValidator(_require_redis_url)]
