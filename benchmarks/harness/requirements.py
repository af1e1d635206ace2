"""All benchmarks in the order in which they run, with the time and disk space that each needs."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Requirements:
    """Time on two idle cores, disk space, and an option without which there is nothing to measure."""

    minutes: int
    disk_gb: int
    option: str = ""

    @property
    def skipped(self) -> str:
        """Why the benchmark is skipped where the option is not given."""
        return f"skipped, because {self.option} is not given; see benchmarks/README.md"

    def text(self) -> str:
        option = f", and {self.option}" if self.option else ""
        return f"{self.minutes} minutes and {self.disk_gb} GB of disk{option}"


REQUIREMENTS: Mapping[str, Requirements] = {
    "service": Requirements(minutes=15, disk_gb=2),
    "latency": Requirements(minutes=40, disk_gb=1),
    "loader": Requirements(minutes=12, disk_gb=20),
    "table_memory": Requirements(minutes=10, disk_gb=25),
    "weights_check": Requirements(minutes=25, disk_gb=35),
    "shards": Requirements(minutes=15, disk_gb=20),
    "warm": Requirements(minutes=7, disk_gb=1),
    "cold": Requirements(minutes=10, disk_gb=3),
    "towers": Requirements(minutes=10, disk_gb=1),
    "gate": Requirements(minutes=45, disk_gb=2),
    "items": Requirements(minutes=30, disk_gb=7),
    "release_gate": Requirements(minutes=10, disk_gb=1),
    "fleet": Requirements(minutes=6, disk_gb=2),
    "peer": Requirements(minutes=100, disk_gb=2, option="--peer COMMAND"),
}
