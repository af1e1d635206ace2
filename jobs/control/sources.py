"""Sources that are surely not there: refused before a job is stored, and not seconds later by its attempt.

Only what the request may name is looked at, after that has been decided. What cannot be looked at from here
is left to the attempt: a store that refuses or does not answer in time, a pattern of rows, a relative path,
and a path in a folder that is not mounted here.
"""

import os
import time
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from threading import BoundedSemaphore, Thread

from exporter.errors import ExportError, SourceNotFound, StorageError
from exporter.spec import ExportOptions
from exporter.storage.open import local_path
from exporter.storage.store import StoredFile
from exporter.storage.uris import is_pattern, uris_of
from jobs.control.content import Identify, stat_files

_LOOK_S = 3.0  # for one source
_AT_ONCE = 16  # looks of all requests
_MOST_LOOKS = 16  # of one request; a config may name a great many files, which are left to the attempt
_REQUEST_S = 6.0  # for all looks of one request


def require_sources(spec: ExportOptions, identify: Identify) -> None:
    """Look at the first sources of an export, for a few seconds.

    Raises:
        SourceNotFound: one is surely not there; the error names the field.
    """
    looks, until = 0, time.monotonic() + _REQUEST_S
    for named in uris_of(spec):
        if named.is_output or named.field == "config_uri":  # which has been read
            continue
        if named.may_be_pattern and is_pattern(named.uri):
            continue
        looks += 1
        if looks > _MOST_LOOKS or time.monotonic() > until:
            return
        if _is_missing(named.uri, identify):
            raise SourceNotFound(
                f"{named.field} names {named.uri}, and nothing is there",
                hint="correct the URI, or post the export once the files are written",
                where=named.field,
            )


def remember(identify: Identify) -> Identify:
    """Return a function that looks at each URI once, for as long as one request is checked."""
    seen: dict[str, Callable[[], tuple[StoredFile, ...]]] = {}

    def look(uri: str) -> tuple[StoredFile, ...]:
        if uri not in seen:
            try:
                found = identify(uri)
            except (ExportError, OSError) as error:
                seen[uri] = _raising(error)
            else:
                seen[uri] = lambda: found
        return seen[uri]()

    return look


class BoundedLook:
    """Looks for the files of URIs, and gives up after some seconds on a store that does not answer."""

    def __init__(self, identify: Identify = stat_files, *, seconds: float = _LOOK_S) -> None:
        """Give each look as many seconds."""
        self._identify = identify
        self._seconds = seconds
        self._slots = BoundedSemaphore(_AT_ONCE)

    def __call__(self, uri: str) -> tuple[StoredFile, ...]:
        """Return what `identify` finds; raise StorageError if that takes too long."""
        late = StorageError(f"{uri} was not found out about within {self._seconds:g} s", where=uri)
        if not self._slots.acquire(timeout=self._seconds):
            raise late
        found: Future[tuple[StoredFile, ...]] = Future()
        # A thread that nobody waits for at the end: a look that hangs must not keep the program from ending.
        Thread(target=self._look, args=(uri, found), daemon=True).start()
        try:
            return found.result(self._seconds)
        except TimeoutError:
            raise late from None

    def _look(self, uri: str, found: "Future[tuple[StoredFile, ...]]") -> None:
        try:
            found.set_result(self._identify(uri))
        except Exception as error:  # noqa: BLE001  raised again for whoever asked
            found.set_exception(error)
        finally:
            self._slots.release()


def _is_missing(uri: str, identify: Identify) -> bool:
    try:
        identify(uri)
    except SourceNotFound:
        path = local_path(uri)
        return path is None or _is_missing_here(path)
    except (ExportError, OSError):
        return False
    return False


def _is_missing_here(path: Path) -> bool:
    """Return whether a path is missing among others; an empty folder, or "/", may lack what workers mount."""
    folder = path.parent
    if not path.is_absolute() or folder == folder.parent:
        return False
    try:
        with os.scandir(folder) as entries:
            return not path.exists() and next(entries, None) is not None
    except OSError:
        return False


def _raising(error: Exception) -> Callable[[], tuple[StoredFile, ...]]:
    def raise_again() -> tuple[StoredFile, ...]:
        raise error

    return raise_again
