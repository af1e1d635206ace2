"""x86-64 levels of this machine's CPU, which the targets avx2 and avx512 need. Imports no torch."""

from exporter.spec import Target
from slipway.loading.cpu import LEVELS, cpu_flags


def cpu_levels() -> tuple[Target, ...]:
    """Return the targets whose level the CPU has completely."""
    flags = cpu_flags()
    return tuple(target for target, needed in LEVELS.items() if needed <= flags)
