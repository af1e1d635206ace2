"""Lease monitors that may expire leases already, and clocks that a test moves."""

from dataclasses import dataclass, field
from datetime import datetime, timedelta

from jobs.lease.lease_expiry import LeaseMonitor, since_boot
from jobs.stores.memory_store import utc_now
from tests.jobs.factories import MINUTE, NOW


@dataclass
class World:
    """The clock of this machine, that of the store, and a monitor that notes a write every second."""

    boot: float = 1000.0
    now: datetime = NOW
    lease_monitor: LeaseMonitor = field(init=False)

    def __post_init__(self) -> None:
        self.lease_monitor = LeaseMonitor(MINUTE, clock=lambda: self.boot)
        self.lease_monitor.note_write(self.now)

    def sleep(self, seconds: float, *, writes: bool = True) -> None:
        """Let time pass; while nobody can write to the store, the monitor notes no writes."""
        for _ in range(int(seconds)):
            self.boot, self.now = self.boot + 1, self.now + timedelta(seconds=1)
            if writes:
                self.lease_monitor.note_write(self.now)


def fair_lease_monitor(length: timedelta = MINUTE) -> LeaseMonitor:
    """A monitor on the real clocks that has noted writes for long enough to expire leases."""
    behind = [length]
    lease_monitor = LeaseMonitor(length, clock=lambda: since_boot() - behind[0].total_seconds())
    while behind[0] > timedelta(0):
        lease_monitor.note_write(utc_now() - behind[0])
        behind[0] -= length / 8
    behind[0] = timedelta(0)
    return lease_monitor
