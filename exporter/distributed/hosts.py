"""The hosts of one attempt: they join torchrun's c10d rendezvous, and tell each other how the attempt ends.

Ranks work alone until they gather their results, so a rank would not notice before that another host has
died. Its host does: every second it writes a heartbeat to the shared store, and reads those of the other
hosts.
"""

import itertools
import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, Thread

from torch.distributed import Store
from torch.distributed.elastic.rendezvous import (
    RendezvousConnectionError,
    RendezvousHandler,
    RendezvousParameters,
    RendezvousTimeoutError,
)
from torch.distributed.elastic.rendezvous.registry import get_rendezvous_handler

from exporter.distributed.rendezvous import Rendezvous
from exporter.errors import HostMissing

log = logging.getLogger(__name__)

_RUN = "slipway-export"  # constant, as only the hosts of one export meet at an address
_BEAT_S = 1.0
_SILENCE_S = 10.0  # a host without a heartbeat for so long, or a store without an answer, is lost
_LEAVING_S = 15.0  # a host that has ended waits this long for the others, which may still read the store
_FIRST, _FAILED, _LEFT = "first", "failed", "left"
_STORE_ERRORS = (RuntimeError, ValueError, TimeoutError)  # DistError is a RuntimeError


class Hosts:
    """This host among the hosts that have joined the rendezvous."""

    def __init__(self, store: Store, index: int, count: int) -> None:
        """Start a thread that writes this host's heartbeat and reads those of the others."""
        self.index, self.count = index, count
        self.failure: str | None = None  # the failure that ends all hosts, once this host has read it
        self._store = store
        self._beats: dict[int, str] = {}
        self._announcements: dict[str, str | None] = {}  # by name; None: not read yet
        self._last_beat_at = dict.fromkeys(range(count), time.monotonic())
        self._stopping = Event()
        self._thread = Thread(target=self._watch_hosts, daemon=True)
        self._thread.start()

    @property
    def leads(self) -> bool:
        """Return whether rank 0 runs on this host."""
        return self.index == 0

    def announce(self, name: str, text: str) -> None:
        """Publish a text under a name, for every host to read."""
        with _translate_store_errors():
            self._store.set(name, text)

    def read_announcement(self, name: str) -> str | None:
        """Return the text published under a name, or None as long as this host has not read it.

        The first call makes the thread look for the name. The call itself never waits: if the store hangs,
        the caller must be able to go on and find that out from `lost_host`.
        """
        return self._announcements.setdefault(name, None)

    def announce_failure(self, text: str) -> str:
        """Publish why the attempt ends; return the failure that all hosts read, the first one published."""
        with _translate_store_errors():
            return bytes(self._store.compare_set(_FAILED, "", text)).decode()

    @property
    def lost_host(self) -> str | None:
        """The host without a heartbeat for too long, in words for an error message; None if there is none."""
        now = time.monotonic()
        silent = [host for host, at in self._last_beat_at.items() if now - at > _SILENCE_S]
        if self.index in silent or not self._thread.is_alive():
            return "the host of the rendezvous"
        return f"host {silent[0]}" if silent else None

    def leave(self) -> None:
        """Wait until all hosts leave, for a limited time: this host may run the store of the rendezvous."""
        deadline = time.monotonic() + _LEAVING_S
        try:
            self._store.add(_LEFT, 1)
            while self._store.add(_LEFT, 0) < self.count and time.monotonic() < deadline:
                time.sleep(_BEAT_S / 5)
        except _STORE_ERRORS:
            return  # the others are gone
        finally:
            self._stopping.set()

    def _watch_hosts(self) -> None:
        try:
            for beat in itertools.count():
                if self._stopping.wait(_BEAT_S if beat else 0):
                    return
                self._exchange_beats(str(beat))
        except HostMissing:
            log.warning("hosts_lost", exc_info=True)

    def _exchange_beats(self, beat: str) -> None:
        self.announce(f"beat-{self.index}", beat)
        for host in range(self.count):
            heard = self._read(f"beat-{host}")
            if heard is not None and heard != self._beats.get(host):
                self._beats[host], self._last_beat_at[host] = heard, time.monotonic()
        for name in [name for name, text in list(self._announcements.items()) if text is None]:
            self._announcements[name] = self._read(name)
        self.failure = self._read(_FAILED)

    def _read(self, name: str) -> str | None:
        with _translate_store_errors():
            return self._store.get(name).decode() if self._store.check([name]) else None


@contextmanager
def _translate_store_errors() -> Iterator[None]:
    try:
        yield
    except _STORE_ERRORS as error:
        raise HostMissing("the host of the rendezvous has gone") from error


def join_rendezvous(place: Rendezvous) -> Hosts:
    """Wait until all hosts have joined; number them, with 0 for the host that runs the rendezvous.

    Raises:
        HostMissing: not all hosts joined within the time limit.
    """
    missing = HostMissing(
        f"not all of {place.hosts} hosts came to {place.endpoint} within "
        f"{place.time_limit.total_seconds():g} s",
        where=place.endpoint,
    )
    try:
        is_here, handler = _open_handler(place)
        joined = handler.next_rendezvous()
    except (RendezvousTimeoutError, RendezvousConnectionError) as error:
        raise missing from error
    with _translate_store_errors():
        if is_here:
            joined.store.set(_FIRST, str(joined.rank))
        first = int(joined.store.get(_FIRST))  # waits until it is set
    index = {first: 0, 0: first}.get(joined.rank, joined.rank)
    return Hosts(joined.store, index, joined.world_size)


def _open_handler(place: Rendezvous) -> tuple[bool, RendezvousHandler]:
    """Open torch's handler, first as the host that runs the rendezvous; return whether this host does.

    Left to itself, torch decides that by comparing host names.
    """
    for is_here in (place.is_here(), False):
        limit = max(1, round(place.time_limit.total_seconds()))
        parameters = RendezvousParameters(
            backend="c10d",
            endpoint=place.endpoint,
            run_id=_RUN,
            min_nodes=place.hosts,
            max_nodes=place.hosts,
            local_addr=place.own_address(),
            is_host=is_here,
            join_timeout=limit,
            read_timeout=limit,
        )
        try:
            return is_here, get_rendezvous_handler(parameters)
        except RendezvousConnectionError:
            if not is_here:  # otherwise another process of this host took the port first
                raise
    raise AssertionError("the second try returns or raises")
