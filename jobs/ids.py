"""Job ids: ordered by time of creation, and not guessable."""

import re
import secrets
import time
from datetime import datetime
from typing import NewType

JobId = NewType("JobId", str)

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"  # Crockford's base 32: no i, l, o, u
_TIME_DIGITS, _RANDOM_DIGITS = 10, 16  # 50 bits of milliseconds, 80 random bits
_PATTERN = re.compile(f"[{_ALPHABET}]{{{_TIME_DIGITS + _RANDOM_DIGITS}}}")


def new_job_id() -> JobId:
    """Return a new id; later ids sort after earlier ones, to the millisecond."""
    milliseconds = time.time_ns() // 1_000_000
    return JobId(_digits(milliseconds, _TIME_DIGITS) + _digits(secrets.randbits(80), _RANDOM_DIGITS))


def first_id_at(when: datetime) -> JobId:
    """Return an id that sorts before all ids made from then on, and after all made earlier."""
    return JobId(_digits(int(when.timestamp() * 1000), _TIME_DIGITS) + _ALPHABET[0] * _RANDOM_DIGITS)


def last_id_beside(job_id: JobId) -> JobId:
    """Return an id that sorts after all ids of the same millisecond, and shows no more of this one."""
    return JobId(job_id[:_TIME_DIGITS] + _ALPHABET[-1] * _RANDOM_DIGITS)


def is_job_id(text: str) -> bool:
    return _PATTERN.fullmatch(text) is not None


def require_job_id(text: str) -> JobId:
    """Return the id, or raise ValueError if the text is none."""
    if not is_job_id(text):
        raise ValueError("this is no id of a job")
    return JobId(text)


def _digits(number: int, count: int) -> str:
    return "".join(_ALPHABET[number >> 5 * place & 31] for place in reversed(range(count)))
