"""What hosts tell each other: the first failure is everybody's, and silence is noticed."""

import threading
import time
from collections.abc import Callable
from datetime import timedelta

import pytest
import torch.distributed as dist

from exporter.distributed import hosts
from exporter.distributed.hosts import Hosts, join_rendezvous
from exporter.distributed.rendezvous import parse_rendezvous
from exporter.errors import HostMissing


def soon(said: Callable[[], object]) -> object:
    deadline = time.monotonic() + 30
    while not (value := said()) and time.monotonic() < deadline:
        time.sleep(0.02)
    return value


def test_all_hosts_read_the_first_failure() -> None:
    store = dist.HashStore()
    first, second = Hosts(store, 0, 2), Hosts(store, 1, 2)
    assert (first.leads, second.leads) == (True, False)
    assert second.announce_failure("rank 3 was killed") == "rank 3 was killed"
    assert first.announce_failure("connection closed") == "rank 3 was killed"
    assert soon(lambda: first.failure) == "rank 3 was killed"


def test_what_nobody_told_is_not_there() -> None:
    host = Hosts(dist.HashStore(), 0, 1)
    assert host.read_announcement("outcome") is None
    host.announce("outcome", "all is well")
    assert soon(lambda: host.read_announcement("outcome")) == "all is well"


def test_a_silent_host_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hosts, "_SILENCE_S", 1.5)
    only = Hosts(dist.HashStore(), 0, 2)
    assert only.lost_host is None
    assert soon(lambda: only.lost_host) == "host 1"


class StandsStill(dist.HashStore):
    """As one whose host is stopped, or cut off: it never answers."""

    def check(self, keys: list[str]) -> bool:
        threading.Event().wait(60)
        return False


def test_a_host_that_stands_still_holds_up_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hosts, "_SILENCE_S", 1.5)
    second = Hosts(StandsStill(), 1, 2)
    assert (
        soon(lambda: second.read_announcement("outcome") or second.lost_host) == "the host of the rendezvous"
    )


def test_who_meets_nobody_says_so() -> None:
    place = parse_rendezvous("127.0.0.1:29417", hosts=2, time_limit=timedelta(seconds=1))
    with pytest.raises(HostMissing, match="not all of 2 hosts came to 127.0.0.1:29417 within 1 s"):
        join_rendezvous(place)
