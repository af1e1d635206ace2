"""Judges whose time of patience is over, and time that passes as a test says."""

from dataclasses import dataclass, field
from datetime import datetime, timedelta

from jobs.lease.lease_expiry import Judge, since_boot
from jobs.stores.memory_store import utc_now
from tests.jobs.factories import MINUTE, NOW


@dataclass
class World:
    """The clock of this machine, that of the store, and a judge who hears every second of a write."""

    boot: float = 1000.0
    now: datetime = NOW
    judge: Judge = field(init=False)

    def __post_init__(self) -> None:
        self.judge = Judge(MINUTE, clock=lambda: self.boot)
        self.judge.written(self.now)

    def sleep(self, seconds: float, *, writes: bool = True) -> None:
        """Let time pass; where nobody can write to the store, it is not told so."""
        for _ in range(int(seconds)):
            self.boot, self.now = self.boot + 1, self.now + timedelta(seconds=1)
            if writes:
                self.judge.written(self.now)


def fair_judge(length: timedelta = MINUTE) -> Judge:
    """One by the real clocks, who has heard for long that the store can be written to."""
    behind = [length]
    judge = Judge(length, clock=lambda: since_boot() - behind[0].total_seconds())
    while behind[0] > timedelta(0):
        judge.written(utc_now() - behind[0])
        behind[0] -= length / 8
    behind[0] = timedelta(0)
    return judge
