"""Where Redis is, checked when settings are read."""

from typing import Annotated

from pydantic import AfterValidator


def _require_redis_url(url: str) -> str:
    from redis.connection import parse_url  # `slipway export` reads a worker's settings, and has no redis

    parse_url(url)  # type: ignore[no-untyped-call]  # redis types not all of it; raises ValueError
    return url


RedisUrl = Annotated[str, AfterValidator(_require_redis_url)]
