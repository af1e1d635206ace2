"""How often an address may be wrong about a key or a signature before it has to wait."""

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
_MOST_KNOWN = 256  # secrets of one address that were right
_IPV6_HOME = 64  # bits that tell one customer of a network from another


@dataclass
class _Tally:
    """What is known of one address."""

    wrong: deque[float] = field(default_factory=deque)  # when
    right: "OrderedDict[bytes, None]" = field(default_factory=OrderedDict)  # digests of secrets


class Guesses:
    """Counts by address, in this process.

    Who was let in from an address before is still let in when somebody else guesses there, behind the same
    proxy for instance; anything else that comes from there is not even compared.
    """

    def __init__(self, limit: int, clock: Callable[[], float] = time.monotonic) -> None:
        """Bear `limit` wrong ones of an address in a minute; 0: any number."""
        self._limit = limit
        self._clock = clock
        self._tallies: OrderedDict[str, _Tally] = OrderedDict()
        self._lock = threading.Lock()

    def require_patience(self, address: str | None, secret: str = "") -> None:
        """TooManyGuesses, if the address was wrong too often of late, and never right with this secret."""
        if not self._limit:
            return
        with self._lock:
            tally = self._tallies.get(_home(address))
            if tally is None or _digest(secret) in tally.right:
                return
            self._forget_old(tally)
            if len(tally.wrong) >= self._limit:
                raise TooManyGuesses(f"more than {self._limit} wrong keys or signatures within a minute")

    def note(self, address: str | None, secret: str = "", *, right: bool) -> None:
        """Count what was just judged."""
        with self._lock:
            home = _home(address)
            tally = self._tallies.setdefault(home, _Tally())
            self._tallies.move_to_end(home)
            if not right:
                self._forget_old(tally)
                tally.wrong.append(self._clock())
            elif secret:
                tally.right[_digest(secret)] = None
                _shorten(tally.right, _MOST_KNOWN)
            _shorten(self._tallies, _MOST_ADDRESSES)

    def _forget_old(self, tally: _Tally) -> None:
        while tally.wrong and (tally.wrong[0] < self._clock() - WINDOW_S or len(tally.wrong) > self._limit):
            tally.wrong.popleft()


def _shorten(entries: "OrderedDict[bytes, None] | OrderedDict[str, _Tally]", most: int) -> None:
    while len(entries) > most:
        entries.popitem(last=False)


def _digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode(errors="surrogatepass")).digest()


def _home(address: str | None) -> str:
    """The address; of IPv6 the network that one customer has, with an address for every guess."""
    try:
        parsed = ip_address(address or "")
    except ValueError:
        return address or ""
    if isinstance(parsed, IPv6Address) and parsed.ipv4_mapped is None:
        return str(ip_network((parsed, _IPV6_HOME), strict=False))
    return str(parsed)
