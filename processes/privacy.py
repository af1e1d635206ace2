"""Hide this process's environment and memory from other processes of the same user."""

import ctypes

_PR_SET_DUMPABLE = 4


def keep_private() -> None:
    """Let no other process of this user read the environment or memory of this process and its forks.

    A child that executes another program is not covered; it has only what it was given.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_DUMPABLE)")
