"""The message by which a worker asks its resident process for an attempt."""

from pathlib import Path

from pydantic import BaseModel

READY = b"ready"  # the first message of a resident process, once it has imported
EVERYTHING = "all"  # the argument for a resident process that imports what only some attempts need
FILES = 3  # that come with an order: the guard's channel, the attempt's log, and the attempt's variables


class Order(BaseModel):
    """An attempt to fork: everything but the environment, which the resident process must not see."""

    workspace: Path
    ranks: int  # a process each
    threads: int  # of each rank
    grace_s: float  # from asking the attempt to end until killing it
    limits: str  # resource limits, as `processes.guard` reads them
