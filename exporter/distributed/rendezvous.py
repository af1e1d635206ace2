"""The rendezvous of the hosts of one export: its address on the command line and on a host's network."""

import fcntl
import socket
import struct
from dataclasses import dataclass
from datetime import timedelta
from ipaddress import IPv4Address, ip_address

from exporter.errors import HostMissing, InvalidSpec

_DEFAULT_PORT = 29400  # torchrun's
_SIOCGIFADDR = 0x8915
_LOOPBACK = "lo"


@dataclass(frozen=True, kw_only=True)
class Rendezvous:
    """An address of one host, which all hosts can reach, and how long they wait there for the last one."""

    hosts: int
    address: str
    port: int
    time_limit: timedelta
    # Whether a worker called this host to lead, as the owner of the address, or to join. None: nobody called
    # it, and the hosts find out who leads and whose job it is.
    leads: bool | None = None

    @property
    def endpoint(self) -> str:
        return f"{self.address}:{self.port}"

    @property
    def was_called(self) -> bool:
        """Return whether a worker called the hosts to one job; then the host that leads retries it."""
        return self.leads is not None

    def is_here(self) -> bool:
        """Return whether this host leads: the address is its own, and the port is still free."""
        if self.leads is not None:
            return self.leads
        with socket.socket() as trial:
            trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                trial.bind((self.address, self.port))
            except OSError:
                return False
        return True

    def own_address(self) -> str:
        """Return the address by which the other hosts reach this one.

        Raises:
            HostMissing: the rendezvous cannot be reached from here, or its name does not resolve.
        """
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as trial:
            try:
                trial.connect((self.address, self.port))  # sends nothing
            except OSError as error:
                raise HostMissing(
                    f"{self.endpoint} cannot be reached from here: {error.strerror}", where=self.endpoint
                ) from error
            name: str = trial.getsockname()[0]
        return name


def parse_rendezvous(text: str, *, hosts: int, time_limit: timedelta) -> Rendezvous:
    """Parse HOST or HOST:PORT; raise InvalidSpec for other text."""
    address, _, port = text.partition(":")
    if not address or not (port or str(_DEFAULT_PORT)).isdecimal() or not 0 < int(port or 1) < 1 << 16:
        raise InvalidSpec(f"{text!r} is not HOST:PORT", where="--rdzv")
    return Rendezvous(hosts=hosts, address=address, port=int(port or _DEFAULT_PORT), time_limit=time_limit)


def find_free_port() -> int:
    """Return a port that is free on all addresses of this host."""
    with socket.create_server(("", 0)) as trial:
        port: int = trial.getsockname()[1]
    return port


def find_interface(address: str) -> str:
    """Return the name of this host's network interface that has the address."""
    if ip_address(address).is_loopback:
        return _LOOPBACK
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as query:
        for _, name in socket.if_nameindex():
            request = struct.pack("256s", name.encode()[:15])
            try:
                answer = fcntl.ioctl(query, _SIOCGIFADDR, request)
            except OSError:
                continue  # the interface has no address
            if IPv4Address(answer[20:24]) == IPv4Address(address):
                return name
    raise InvalidSpec(f"no network interface of this host has the address {address}", where="--rdzv")
