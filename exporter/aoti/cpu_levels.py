"""x86-64 levels of this machine's CPU, which the targets avx2 and avx512 need. Imports no torch."""

from functools import cache
from pathlib import Path

from exporter.spec import Target

# CPU flags of x86-64-v3 and x86-64-v4, by Linux's names.
_V3 = frozenset(("avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "abm", "movbe", "xsave"))
_V4 = _V3 | {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}
_LEVELS: dict[Target, frozenset[str]] = {"avx2": _V3, "avx512": _V4}


def cpu_levels() -> tuple[Target, ...]:
    """Return the targets whose level the CPU has completely."""
    flags = cpu_flags()
    return tuple(target for target, needed in _LEVELS.items() if needed <= flags)


@cache
def cpu_flags() -> frozenset[str]:
    """Return the CPU's flags, by Linux's names."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    flags = next((line for line in lines if line.startswith(("flags", "Features"))), ":")
    return frozenset(flags.partition(":")[2].split())
