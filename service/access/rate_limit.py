"""The limit on wrong keys and signatures that an address may send, against guessing."""

import hashlib
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from ipaddress import IPv6Address, ip_address, ip_network

from service.errors import TooManyGuesses

WINDOW_S = 60.0
_MOST_ADDRESSES = 10_000
_MOST_RIGHT = 256  # secrets remembered of one address
_IPV6_PREFIX = 64  # bits of the network that one customer has


@dataclass
class _Tally:
    """The right and wrong secrets that one address has sent."""

    wrong: deque[float] = field(default_factory=deque)  # when each was sent
    right: "OrderedDict[bytes, None]" = field(default_factory=OrderedDict)  # their digests


class GuessLimit:
    """Counts wrong secrets by address, in this process.

    A secret that was right from an address before stays accepted there while somebody else guesses, behind
    the same proxy for instance; any other secret from that address is not even compared.
    """

    def __init__(self, limit: int, clock: Callable[[], float] = time.monotonic) -> None:
        """Allow `limit` wrong secrets of an address in a minute; 0 allows any number."""
        self._limit = limit
        self._clock = clock
        self._tallies: OrderedDict[str, _Tally] = OrderedDict()
        self._lock = threading.Lock()

    def require_below(self, address: str | None, secret: str = "") -> None:
        """Raise TooManyGuesses if the address is at its limit, unless this secret was right there before."""
        if not self._limit:
            return
        with self._lock:
            tally = self._tallies.get(network_of(address))
            if tally is None or _digest(secret) in tally.right:
                return
            self._forget_old(tally)
            if len(tally.wrong) >= self._limit:
                raise TooManyGuesses(f"more than {self._limit} wrong keys or signatures within a minute")

    def count(self, address: str | None, secret: str = "", *, right: bool) -> None:
        """Count a secret that was compared, as right or wrong."""
        with self._lock:
            network = network_of(address)
            tally = self._tallies.setdefault(network, _Tally())
            self._tallies.move_to_end(network)
            if not right:
                self._forget_old(tally)
                tally.wrong.append(self._clock())
            elif secret:
                tally.right[_digest(secret)] = None
                _drop_oldest(tally.right, _MOST_RIGHT)
            _drop_oldest(self._tallies, _MOST_ADDRESSES)

    def _forget_old(self, tally: _Tally) -> None:
        while tally.wrong and (tally.wrong[0] < self._clock() - WINDOW_S or len(tally.wrong) > self._limit):
            tally.wrong.popleft()


def _drop_oldest(entries: "OrderedDict[bytes, None] | OrderedDict[str, _Tally]", most: int) -> None:
    while len(entries) > most:
        entries.popitem(last=False)


def _digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode(errors="surrogatepass")).digest()


def network_of(address: str | None) -> str:
    """Return an IPv4 address as it is, and for IPv6 the network of one customer.

    A customer has enough addresses in an IPv6 network to use a new one for every guess. Text that is no
    address, which a proxy may pass on as it got it, counts as one address, or a new text would do as well.
    """
    try:
        parsed = ip_address(address or "")
    except ValueError:
        return ""
    if not isinstance(parsed, IPv6Address):
        return str(parsed)
    return str(parsed.ipv4_mapped or ip_network((int(parsed), _IPV6_PREFIX), strict=False))
