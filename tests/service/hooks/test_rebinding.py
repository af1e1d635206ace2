"""Names that resolve to changing addresses, and hosts written other than as dotted decimals."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from ipaddress import ip_network

import httpcore
import pytest

from jobs.hooks.errors import CallbackRefused
from service.hooks.addresses import AddressRefused, GuardedNetwork
from service.hooks.poster import Poster
from service.hooks.receivers import require_permitted_url
from service.hooks.settings import HookSettings
from tests.service.hooks.receiver import Receiver

SECOND = timedelta(seconds=1)
PUBLIC = "203.0.114.9"  # of the internet, though nobody is reached there in a test
LOOPBACK = (ip_network("127.0.0.1/32"),)


class Resolver:
    """A name server that answers each question with the next of its answers, and then with the last."""

    def __init__(self, *answers: list[str]) -> None:
        self._answers = list(answers)
        self.asked = 0

    def __call__(self, host: str, port: int, *_: object, **__: object) -> list[object]:
        if not host.endswith(".test"):  # an address, which the connection itself asks about
            return [(_family(host), socket.SOCK_STREAM, 6, "", (host, port))]
        self.asked += 1
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        return [(_family(each), socket.SOCK_STREAM, 6, "", (each, port)) for each in answer]


def _family(address: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in address else socket.AF_INET


@contextmanager
def resolving(resolver: Resolver) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("service.hooks.addresses.socket.getaddrinfo", resolver)
        yield


def port_of(receiver: Receiver) -> str:
    return receiver.url.rpartition(":")[2]


def test_the_answer_that_is_judged_is_the_one_connected_to(receiver: Receiver) -> None:
    """A name resolves first to a public address and then to this machine: it is resolved only once."""
    resolver = Resolver([PUBLIC], ["127.0.0.1"])
    with resolving(resolver):
        answer = Poster((), timedelta(seconds=0.3)).post(
            f"http://rebound.test:{port_of(receiver)}/", {}, b"{}"
        )
    assert (resolver.asked, answer.accepted, receiver.received) == (1, False, [])


def test_of_several_answers_only_permitted_ones_are_tried(receiver: Receiver) -> None:
    with resolving(Resolver(["127.0.0.1", "::1", "::ffff:127.0.0.1", "169.254.169.254", "10.0.0.1"])):
        answer = Poster((), SECOND).post(f"http://mixed.test:{port_of(receiver)}/", {}, b"{}")
    assert (answer.hopeless, receiver.received) == (True, [])


def test_each_try_asks_anew(receiver: Receiver) -> None:
    """An address is checked at every sending: this machine, the first one, is allowed, the next is not."""
    resolver = Resolver(["127.0.0.1"], ["127.0.0.2"])
    poster = Poster(LOOPBACK, SECOND)
    with resolving(resolver):
        first, second = (
            poster.post(f"http://rebound.test:{port_of(receiver)}/", {}, b"{}") for _ in range(2)
        )
    assert (first.accepted, second.accepted, second.hopeless) == (True, False, True)
    assert len(receiver.received) == 1


class Detour(httpcore.SyncBackend):
    """A network that leads to this machine whatever address it is given, as a redirecting firewall would."""

    def connect_tcp(self, host: str, port: int, *_: object, **__: object) -> httpcore.NetworkStream:
        return super().connect_tcp("127.0.0.1", port)


def test_the_address_connected_to_is_judged_as_well(receiver: Receiver) -> None:
    network = GuardedNetwork((), deadline_s=1.0)
    network._network = Detour()
    with resolving(Resolver([PUBLIC])), pytest.raises(AddressRefused, match="led to an address"):
        network.connect_tcp("detour.test", int(port_of(receiver)))


OTHER_WAYS = [
    "2130706433",
    "0x7f000001",
    "0177.0.0.1",
    "0x7f.1",
    "127.1",
    "127.0.1",
    "017700000001",
    "[::1]",
    "[::ffff:127.0.0.1]",
    "[::ffff:7f00:1]",
    "[0:0:0:0:0:0:0:1]",
    "[::127.0.0.1]",
    "localhost.",
    "0",
]


@pytest.mark.parametrize("host", OTHER_WAYS)
def test_this_machine_is_known_under_all_its_names(receiver: Receiver, host: str) -> None:
    answer = Poster((), SECOND).post(f"http://{host}:{port_of(receiver)}/", {}, b"{}")
    assert (answer.accepted, receiver.received) == (False, [])


@pytest.mark.parametrize(
    "host", ["169.254.169.254", "[fd00:ec2::254]", "100.100.100.200", "[fe80::1]", "localhost"]
)
def test_metadata_and_link_local_addresses_are_refused_at_submit(host: str) -> None:
    with pytest.raises(CallbackRefused, match="not an address of the internet"):
        require_permitted_url(f"http://{host}/latest/meta-data", HookSettings())
