"""What the compiler leaves on a machine: kept where it spares work, removed where it is of no more use."""

import shutil
import time
from datetime import timedelta
from pathlib import Path

_KEPT = "precompiled_headers"  # seconds of every compile; the probes of the processor are small and new daily
_LIFETIME = timedelta(days=1)  # longer than any attempt may take


def prune(folder: Path) -> None:
    """Remove what was generated for programs a day ago or earlier; `folder` must be Slipway's own."""
    oldest = time.time() - _LIFETIME.total_seconds()
    if not folder.is_dir():
        return
    for left in folder.iterdir():
        try:
            if left.is_dir() and left.name != _KEPT and left.stat().st_mtime < oldest:
                shutil.rmtree(left, ignore_errors=True)
        except OSError:  # another attempt was quicker
            continue
