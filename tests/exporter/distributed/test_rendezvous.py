"""Where hosts meet: as written, and which of this machine's addresses and interfaces it means."""

import socket
from datetime import timedelta

import pytest

from exporter.distributed.rendezvous import Rendezvous, find_free_port, find_interface, parse_rendezvous
from exporter.errors import HostMissing, InvalidSpec


def place(text: str) -> Rendezvous:
    return parse_rendezvous(text, hosts=2, time_limit=timedelta(seconds=1))


def test_without_a_port_it_is_torchruns() -> None:
    assert (place("node1").endpoint, place("node1:5").endpoint) == ("node1:29400", "node1:5")


@pytest.mark.parametrize("text", ["", ":29400", "node1:x", "node1:0", "node1:65536", "a:1:2"])
def test_what_is_no_place_is_refused(text: str) -> None:
    with pytest.raises(InvalidSpec, match="is not HOST:PORT"):
        place(text)


def test_it_is_here_where_the_address_is_and_the_port_is_free() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        assert not place(f"127.0.0.1:{taken.getsockname()[1]}").is_here()
    assert place("127.0.0.1:29411").is_here()
    assert not place("192.0.2.1:29411").is_here()  # an address that nobody has


def test_an_address_is_an_interfaces() -> None:
    assert place("127.0.0.2").own_address().startswith("127.")
    assert find_interface("127.0.0.2") == "lo"
    with pytest.raises(InvalidSpec, match=r"192\.0\.2\.1"):
        find_interface("192.0.2.1")


def test_an_unknown_host_name_is_reported() -> None:
    with pytest.raises(HostMissing, match="nobody.invalid:5 cannot be reached from here: Name or service"):
        place("nobody.invalid:5").own_address()


def test_a_free_port_is_free_on_every_address() -> None:
    port = find_free_port()
    for address in ("127.0.0.1", "127.0.0.2"):
        socket.create_server((address, port)).close()
