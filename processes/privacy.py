"""Keeping what a process knows from other processes of the same user."""

import ctypes

_PR_SET_DUMPABLE = 4


def keep_private() -> None:
    """Let no other process of this user read the environment or the memory of this one and those it forks.

    A child that executes a program of its own is not covered: it has only what it was given.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_DUMPABLE)")
