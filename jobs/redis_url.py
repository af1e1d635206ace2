"""Where Redis is, checked when settings are read."""

from typing import Annotated

from pydantic import AfterValidator
from redis.connection import parse_url


def _checked(url: str) -> str:
    parse_url(url)  # type: ignore[no-untyped-call]  # redis types not all of it; raises ValueError
    return url


RedisUrl = Annotated[str, AfterValidator(_checked)]
