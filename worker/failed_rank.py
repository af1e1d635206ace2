"""Which rank of an attempt was the first to fail, and how: from what torchrun and the rank itself wrote."""

import re
import signal

_ROOT_CAUSE = "Root Cause (first observed failure):"  # how torchrun begins, as it ends for a rank
_RANK = re.compile(r"^ *rank +: (\d+)", re.MULTILINE)
_EXIT = re.compile(r"^ *exitcode +: (-?\d+)", re.MULTILINE)
_LINES = 20


def failed_rank(log: str) -> str | None:
    """What ended all ranks, in words; None where no rank did, or torchrun does not say."""
    before, found, told = log.rpartition(_ROOT_CAUSE)
    rank, status = _RANK.search(told), _EXIT.search(told)
    if not found or rank is None or status is None:
        return None
    own = re.compile(rf"^\[[\w-]*?{rank[1]}\]: ?(.*)$", re.MULTILINE)
    last = "\n".join(own.findall(before)[-_LINES:])
    what = f"rank {rank[1]} {_how(int(status[1]))}, and the other ranks were ended"
    return f"{what}; what it wrote ends:\n{last}" if last else what


def _how(status: int) -> str:
    if status < 0:
        return f"was killed by {signal.Signals(-status).name}"
    return f"ended with status {status}"
