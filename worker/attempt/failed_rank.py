"""Which rank of an attempt was the first to fail, how, and what it wrote last: read from the log."""

import re

# What `exporter.distributed.fork_ranks` writes, as it ends the others.
_FAILED = re.compile(r"^rank (?P<rank>\d+) (?P<how>.+); the other ranks are ended$", re.MULTILINE)
_LINES = 20


def describe_failed_rank(log: str) -> str | None:
    """What ended all ranks, in words; None where no rank did."""
    *_, failed = (None, *_FAILED.finditer(log))
    if failed is None:
        return None
    own = re.compile(rf"^\[rank{failed['rank']}\]: ?(.*)$", re.MULTILINE)
    last = "\n".join(own.findall(log)[-_LINES:])
    what = f"rank {failed['rank']} {failed['how']}, and the other ranks were ended"
    return f"{what}; what it wrote ends:\n{last}" if last else what
