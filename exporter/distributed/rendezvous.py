"""Where the hosts of one export meet: as the command line has it, and as a host's network does."""

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
    """An address of one of the hosts, which all of them reach, and how long they wait there for the last."""

    hosts: int
    address: str
    port: int
    time_limit: timedelta
    # Whether this host was told to lead, as the one that has the address. None: the hosts find out who leads,
    # and whose job it is.
    leads: bool | None = None

    @property
    def endpoint(self) -> str:
        return f"{self.address}:{self.port}"

    @property
    def called(self) -> bool:
        """Whether the hosts were called to one job, which the one that leads tries again."""
        return self.leads is not None

    def is_here(self) -> bool:
        """Whether this host leads: the address is its own, and nobody here is at the port yet."""
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
        """The address of this host that others of the meeting reach it by.

        Raises:
            HostMissing: from here no way leads to the place, or its name is nobody's.
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
    """The place written HOST or HOST:PORT; InvalidSpec if it is none."""
    address, _, port = text.partition(":")
    if not address or not (port or str(_DEFAULT_PORT)).isdecimal() or not 0 < int(port or 1) < 1 << 16:
        raise InvalidSpec(f"{text!r} is no HOST:PORT", where="--rdzv")
    return Rendezvous(hosts=hosts, address=address, port=int(port or _DEFAULT_PORT), time_limit=time_limit)


def find_free_port() -> int:
    """A port that nobody is at here, by any of this host's addresses."""
    with socket.create_server(("", 0)) as trial:
        port: int = trial.getsockname()[1]
    return port


def find_interface(address: str) -> str:
    """The name of this host's network interface that has the address."""
    if ip_address(address).is_loopback:
        return _LOOPBACK
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        for _, name in socket.if_nameindex():
            request = struct.pack("256s", name.encode()[:15])
            try:
                answer = fcntl.ioctl(asking, _SIOCGIFADDR, request)
            except OSError:
                continue  # it has no address
            if IPv4Address(answer[20:24]) == IPv4Address(address):
                return name
    raise InvalidSpec(f"no network interface of this host has the address {address}", where="--rdzv")
