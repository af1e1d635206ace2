"""Slipway for other programs: `slipway.export` publishes a module of yours, and `slipway.plan` shows how.

Beside them are `slipway.client`, `slipway.loader` and `slipway.families`. Nothing is imported before its use.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from slipway.own_module import Published as Published
    from slipway.own_module import export as export
    from slipway.own_module import plan as plan


def __getattr__(name: str) -> object:
    if name not in ("Published", "export", "plan"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from slipway.lazy import find_in_exporter

    return find_in_exporter("slipway.own_module", name)
