"""Find in an attempt's log which rank failed first, how, and the last lines it wrote."""

import re

# Written by `exporter.distributed.fork_ranks` when it ends the other ranks.
_FAILED = re.compile(r"^rank (?P<rank>\d+) (?P<how>.+); the other ranks are ended$", re.MULTILINE)
_LINES = 20


def describe_failed_rank(log: str) -> str | None:
    """Return a description of the first rank that failed, with its last lines; None if no rank did."""
    *_, failed = (None, *_FAILED.finditer(log))
    if failed is None:
        return None
    own = re.compile(rf"^\[rank{failed['rank']}\]: ?(.*)$", re.MULTILINE)
    last = "\n".join(own.findall(log)[-_LINES:])
    what = f"rank {failed['rank']} {failed['how']}, and the other ranks were ended"
    return f"{what}; what it wrote ends:\n{last}" if last else what
