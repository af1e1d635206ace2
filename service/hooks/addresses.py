"""The addresses that callbacks may reach: the public internet, and the networks that the settings allow.

A callback's URL is chosen by a caller, so that without this rule a caller could reach whatever the service
can. Names are resolved here, and the connection goes to the very address that was checked.
"""

import socket
import time
from collections.abc import Iterable
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from ssl import SSLContext
from typing import Any

import httpcore

Network = IPv4Network | IPv6Network

_NAT64 = IPv6Network("64:ff9b::/96")
_INTERNET = IPv6Network("2000::/3")  # all addresses that are assigned as global unicast


class AddressRefused(Exception):
    """The host has no address that callbacks may reach."""


class GuardedNetwork(httpcore.NetworkBackend):
    """Connects to permitted addresses only, and drops every connection at a deadline."""

    def __init__(self, allowed: Iterable[Network], *, deadline_s: float) -> None:
        """Permit `allowed` networks beside the internet; a connection may last `deadline_s` seconds."""
        self._allowed = tuple(allowed)
        self._deadline_s = deadline_s
        self._network = httpcore.SyncBackend()

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.NetworkStream:
        deadline = time.monotonic() + self._deadline_s
        permitted = [address for address in _resolve(host, port) if permits(address, self._allowed)]
        if not permitted:
            raise AddressRefused(f"{host} is not an address that callbacks may reach")
        *others, last = permitted
        for address in others:
            try:
                stream = self._network.connect_tcp(str(address), port, _left(deadline), local_address)
            except (httpcore.ConnectError, httpcore.ConnectTimeout):
                continue
            return self._bound_to_peer(stream, host, deadline)
        stream = self._network.connect_tcp(str(last), port, _left(deadline), local_address)
        return self._bound_to_peer(stream, host, deadline)

    def _bound_to_peer(
        self, stream: httpcore.NetworkStream, host: str, deadline: float
    ) -> httpcore.NetworkStream:
        """Return the stream with its deadline, if the peer's address is permitted too, else refuse it."""
        peer = stream.get_extra_info("server_addr")
        if not permits(ip_address(str(peer[0]).partition("%")[0]), self._allowed):
            stream.close()
            raise AddressRefused(f"{host} led to an address that callbacks may not reach")
        return _Bounded(stream, deadline)


class _Bounded(httpcore.NetworkStream):
    """A stream whose reads and writes share one deadline: a receiver cannot hold a sender byte by byte."""

    def __init__(self, stream: httpcore.NetworkStream, deadline: float) -> None:
        self._stream = stream
        self._deadline = deadline

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return self._stream.read(max_bytes, _left(self._deadline))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._stream.write(buffer, _left(self._deadline))

    def close(self) -> None:
        self._stream.close()

    def start_tls(
        self, ssl_context: SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.NetworkStream:
        secured = self._stream.start_tls(ssl_context, server_hostname, _left(self._deadline))
        return _Bounded(secured, self._deadline)

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)


def permits(address: IPv4Address | IPv6Address, allowed: Iterable[Network]) -> bool:
    """Return whether the address is one of the internet, or lies in an allowed network."""
    address = _embedded_ipv4(address)
    if any(address in network for network in allowed):
        return True
    if isinstance(address, IPv6Address) and address not in _INTERNET:
        return False  # also embeddings of an IPv4 address that _embedded_ipv4 does not know
    return address.is_global and not address.is_multicast


def _embedded_ipv4(address: IPv4Address | IPv6Address) -> IPv4Address | IPv6Address:
    """Return the IPv4 address that an IPv6 one embeds, else the address itself."""
    if isinstance(address, IPv4Address):
        return address
    if address in _NAT64:
        return IPv4Address(int(address) & 0xFFFFFFFF)
    return address.ipv4_mapped or address.sixtofour or address


def _resolve(host: str, port: int) -> list[IPv4Address | IPv6Address]:
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise httpcore.ConnectError(f"{host} cannot be resolved") from error
    return [ip_address(str(sockaddr[0]).partition("%")[0]) for *_, sockaddr in found]


def _left(deadline: float) -> float:
    seconds = deadline - time.monotonic()
    if seconds <= 0:
        raise httpcore.ReadTimeout("the receiver took too long")
    return seconds
