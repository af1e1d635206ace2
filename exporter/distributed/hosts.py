"""The hosts of one attempt: they meet by torchrun's c10d rendezvous, and tell each other how it ends.

Ranks work alone for as long as it takes, so that nothing would tell them of another host's end before they
meet. Their host does: every second it gives a sign of life, and looks for those of the others.
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

_RUN = "slipway-export"  # what meets at an address is one export
_BEAT_S = 1.0
_SILENCE_S = 10.0  # of a host, or of the place where they meet: then it is taken for lost
_LEAVING_S = 15.0  # who has ended waits this long for the others, which may yet want to read of it
_FIRST, _FAILED, _LEFT = "first", "failed", "left"
_STORE_ERRORS = (RuntimeError, ValueError, TimeoutError)  # DistError is a RuntimeError


class Hosts:
    """This host among those that have met."""

    def __init__(self, store: Store, index: int, count: int) -> None:
        """Begin to give signs of life, and to look for the others'."""
        self.index, self.count = index, count
        self.failure: str | None = None  # what ended all, as far as this host has heard
        self._store = store
        self._beats: dict[int, str] = {}
        self._announcements: dict[str, str | None] = {}  # by what is asked for
        self._last_beat_at = dict.fromkeys(range(count), time.monotonic())
        self._stopping = Event()
        self._thread = Thread(target=self._watch_hosts, daemon=True)
        self._thread.start()

    @property
    def leads(self) -> bool:
        """Whether rank 0 is here."""
        return self.index == 0

    def announce(self, name: str, text: str) -> None:
        """Let every host read this."""
        with _translate_store_errors():
            self._store.set(name, text)

    def read_announcement(self, name: str) -> str | None:
        """What a host has told by this name, as far as this one has heard; it listens from the first call on.

        Never waits: who asks a host that stands still gets no answer, and must be able to find that out.
        """
        return self._announcements.setdefault(name, None)

    def announce_failure(self, text: str) -> str:
        """Tell that all is over, and why; returns what all hosts are told, which is what was told first."""
        with _translate_store_errors():
            return bytes(self._store.compare_set(_FAILED, "", text)).decode()

    @property
    def lost_host(self) -> str | None:
        """Who has not been heard of for too long."""
        now = time.monotonic()
        silent = [host for host, at in self._last_beat_at.items() if now - at > _SILENCE_S]
        if self.index in silent or not self._thread.is_alive():
            return "the host where all meet"
        return f"host {silent[0]}" if silent else None

    def leave(self) -> None:
        """Go once all do, or after some time: the place where they meet may be this host's."""
        deadline = time.monotonic() + _LEAVING_S
        try:
            self._store.add(_LEFT, 1)
            while self._store.add(_LEFT, 0) < self.count and time.monotonic() < deadline:
                time.sleep(_BEAT_S / 5)
        except _STORE_ERRORS:
            return  # they are gone
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
        raise HostMissing("the host where all meet has gone") from error


def join_rendezvous(place: Rendezvous) -> Hosts:
    """Return once all hosts are there, each with a number of its own; the first is where they meet.

    Raises:
        HostMissing: they were not within the time limit.
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
        first = int(joined.store.get(_FIRST))  # waits for it
    index = {first: 0, 0: first}.get(joined.rank, joined.rank)
    return Hosts(joined.store, index, joined.world_size)


def _open_handler(place: Rendezvous) -> tuple[bool, RendezvousHandler]:
    """Whether they meet on this host, which is tried first, and torch's handler; torch goes by names."""
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
            if not is_here:  # else another process of this host was quicker
                raise
    raise AssertionError("the second try returns or raises")
