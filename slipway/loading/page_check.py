"""Check the chunks of mapped files after they were loaded: each once, as soon as it is in memory."""

import os
import threading
from collections.abc import Sequence

from slipway.loading.errors import ArtifactDamaged
from slipway.loading.layout.digests import CHUNK, Tree
from slipway.loading.layout.weights_file import PAGE
from slipway.loading.mapped_file import MappedFile

_EVERY_S = 1.0
_NICENESS = 15


class PageCheck:
    """A thread that checks what calls have brought into memory, and never reads what nobody has read.

    When everything has been checked, or something was found damaged, it ends.
    """

    def __init__(self, files: Sequence[tuple[Tree, MappedFile]]) -> None:
        """Begin to check these files."""
        self.damage: ArtifactDamaged | None = None
        self._files = files
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="slipway-page-check", daemon=True)
        self._thread.start()

    def require_intact(self) -> None:
        """Raise ArtifactDamaged if anything was found damaged; a new one, as an error grows when raised."""
        if self.damage is not None:
            raise ArtifactDamaged(self.damage.message, where=self.damage.where)

    def wait(self, seconds: float | None = None) -> bool:
        """Wait until every chunk has been checked, at most so long; return whether that is so."""
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def stop(self) -> None:
        """Let the thread end after the chunk that it reads; nobody waits, as its priority is low.

        The files may be unmapped meanwhile: it reads them by descriptors of its own.
        """
        self._stop.set()

    def _run(self) -> None:
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICENESS)
        pending = [(tree, mapped, set(range(tree.chunks))) for tree, mapped in self._files]
        while any(chunks for _, _, chunks in pending):
            for tree, mapped, chunks in pending:
                try:
                    self._check(tree, mapped, chunks)
                except OSError as error:
                    self.damage = ArtifactDamaged(f"{tree.path} cannot be read: {error.strerror}")
                if self.damage is not None:
                    return
            if self._stop.wait(_EVERY_S if any(chunks for _, _, chunks in pending) else 0):
                return

    def _check(self, tree: Tree, mapped: MappedFile, chunks: set[int]) -> None:
        """Check the chunks that are in memory, and take them out of the set."""
        if not chunks:
            return
        pages, per_chunk = mapped.resident_pages(), CHUNK // PAGE
        with tree.path.open("rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_RANDOM)  # no reading ahead
            for chunk in sorted(chunks):
                if self._stop.is_set():
                    return
                if pages.find(b"\1", chunk * per_chunk, (chunk + 1) * per_chunk) < 0:
                    continue
                if not tree.is_intact(file.fileno(), chunk):
                    self.damage = tree.damage(chunk)
                    return
                chunks.discard(chunk)
