"""The benchmarks there are, in the order in which they are run, and what each needs."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Needs:
    """On two cores that nobody else uses."""

    minutes: int
    disk_gb: int

    def text(self) -> str:
        return f"{self.minutes} minutes and {self.disk_gb} GB of disk"


NEEDS: Mapping[str, Needs] = {
    "service": Needs(minutes=6, disk_gb=2),
    "latency": Needs(minutes=15, disk_gb=1),
    "table_memory": Needs(minutes=10, disk_gb=25),
    "shards": Needs(minutes=15, disk_gb=20),
    "warm": Needs(minutes=20, disk_gb=1),
    "towers": Needs(minutes=10, disk_gb=1),
    "items": Needs(minutes=30, disk_gb=7),
}
