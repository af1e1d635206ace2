"""Telling paths on disks of this machine from others, without a question to any other file system.

A file system behind a network or another program may not answer for minutes, and its files look like others.
Paths are texts here: these functions run on an event loop, once for every source of a request.
"""

import errno
import os
from collections.abc import Mapping
from pathlib import Path

_MOUNTS = Path("/proc/self/mountinfo")
_OWN = frozenset({"btrfs", "ext2", "ext3", "ext4", "f2fs", "overlay", "ramfs", "tmpfs", "xfs", "zfs"})
_MOST_LINKS = 40  # on the way, as in Linux


def read_mounts() -> Mapping[str, str]:
    """Return the kind of the file system at each mount point; nothing where that cannot be read."""
    try:
        lines = _MOUNTS.read_text(errors="surrogateescape").splitlines()
    except OSError:  # not Linux
        return {}
    return dict(map(_read_mount, lines))  # of several at one point, the last is the one that shows


def _read_mount(line: str) -> tuple[str, str]:
    fields, _, source = line.partition(" - ")
    point = fields.split(" ")[4]
    for character in " \t\n\\":  # the kernel writes them in octal
        point = point.replace(f"\\{ord(character):03o}", character)
    return point, source.split(" ")[0]


def lies_on_own_disk(path: str, mounts: Mapping[str, str]) -> bool:
    """Return whether an absolute path and all below it lie on own disks, and so do all links on the way."""
    if mounts.get("/") not in _OWN:
        return False
    reached, links = "", 0  # "" is the root
    waiting = path.split("/")[::-1]
    while waiting:
        name = waiting.pop()
        if name in ("", "."):
            continue
        if name == "..":
            reached = reached.rpartition("/")[0]
            continue
        further = f"{reached}/{name}"
        if further in mounts and mounts[further] not in _OWN:
            return False
        try:
            target = os.readlink(further)  # noqa: PTH115 (a path's own method takes twice as long)
        except OSError as error:
            if error.errno != errno.EINVAL:  # it does not exist, or cannot be reached
                return True
            reached = further  # it is no link
            continue
        links += 1
        if links > _MOST_LINKS:
            return False
        if target.startswith("/"):
            reached = ""
        waiting += target.split("/")[::-1]
    return not any(point.startswith(f"{reached}/") for point in mounts)
