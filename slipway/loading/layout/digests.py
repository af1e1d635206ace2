"""Digests of files: SHA-256 of a whole file, and a tree by which a part of it can be checked alone.

The file is cut into chunks of CHUNK bytes. A leaf is SHA-256(0x00, chunk); the root is SHA-256(0x01, the
file's size as 8 bytes little endian, all leaves).
"""

import hashlib
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from slipway.loading.errors import ArtifactDamaged

CHUNK = 1 << 20
LEAF = 32  # bytes
_THREADS = 8


def digest_file(path: Path) -> str:
    """Return a file's SHA-256 in hexadecimal digits; raise ArtifactDamaged if it cannot be read."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise ArtifactDamaged(f"{path} cannot be read: {error.strerror}", where=str(path)) from error


def require_file(path: Path, size: int, sha256: str | None) -> None:
    """Raise ArtifactDamaged unless the file has this size and, if one is given, this digest."""
    try:
        found = path.stat().st_size
    except OSError as error:
        raise ArtifactDamaged(f"{path} is missing, though the manifest names it", where=str(path)) from error
    if found != size:
        raise ArtifactDamaged(f"{path} has {found:,} bytes instead of {size:,}", where=str(path))
    if sha256 is not None and digest_file(path) != sha256:
        raise ArtifactDamaged(f"{path} is damaged: its digest is not the published one", where=str(path))


def leaf_of(chunk: bytes | memoryview) -> bytes:
    """Return the leaf of one chunk."""
    digest = hashlib.sha256(b"\0")
    digest.update(chunk)
    return digest.digest()


def read_leaves(path: Path) -> bytes:
    """Read a file and return its leaves."""
    with path.open("rb") as file:
        return b"".join(leaf_of(chunk) for chunk in iter(lambda: file.read(CHUNK), b""))


def root_of(size: int, leaves: bytes) -> str:
    """Return the root of a file of `size` bytes."""
    digest = hashlib.sha256(b"\1" + size.to_bytes(8, "little"))
    digest.update(leaves)
    return digest.hexdigest()


@dataclass(frozen=True, kw_only=True)
class Tree:
    """A file whose chunks can be checked one by one."""

    path: Path
    size: int
    leaves: bytes

    @property
    def chunks(self) -> int:
        """The number of chunks."""
        return len(self.leaves) // LEAF

    def is_intact(self, descriptor: int, chunk: int) -> bool:
        """Read a chunk of the open file and return whether it is the published one."""
        data = os.pread(descriptor, CHUNK, chunk * CHUNK)
        return leaf_of(data) == self.leaves[chunk * LEAF : (chunk + 1) * LEAF]

    def damage(self, chunk: int) -> ArtifactDamaged:
        """Return the error that says which chunk is damaged."""
        first = chunk * CHUNK
        last = min(first + CHUNK, self.size)
        return ArtifactDamaged(
            f"{self.path} is damaged between its bytes {first:,} and {last:,}", where=str(self.path)
        )


def open_tree(path: Path, size: int, leaves: Path, root: str) -> Tree:
    """Read the leaves of a file, and check them and the file's size.

    Raises:
        ArtifactDamaged: the file has another size, or the leaves are not those of the root.
    """
    require_file(path, size, None)
    require_file(leaves, -(-size // CHUNK) * LEAF, None)
    found = leaves.read_bytes()
    if root_of(size, found) != root:
        raise ArtifactDamaged(f"{leaves} is damaged: its digest is not the recorded one", where=str(leaves))
    return Tree(path=path, size=size, leaves=found)


def check_trees(trees: Sequence[Tree]) -> None:
    """Read every chunk of the files, several at a time; raise ArtifactDamaged for the first damaged one."""
    with ThreadPoolExecutor(min(_THREADS, os.cpu_count() or 1)) as pool:
        for tree in trees:
            with tree.path.open("rb") as file:
                intact = pool.map(_checker(tree, file.fileno()), range(tree.chunks))
                for chunk, is_intact in enumerate(intact):
                    if not is_intact:
                        pool.shutdown(cancel_futures=True)
                        raise tree.damage(chunk)


def _checker(tree: Tree, descriptor: int) -> Callable[[int], bool]:
    return lambda chunk: tree.is_intact(descriptor, chunk)
