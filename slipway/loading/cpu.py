"""The abilities of this machine's CPU, and what compiled code asks of it. Imports no torch."""

import platform
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Literal, TypeAlias

Level: TypeAlias = Literal["avx2", "avx512"]

# CPU flags of x86-64-v3 and x86-64-v4, by Linux's names; `avx2` and `avx512` alone stand for all of them.
_V3 = frozenset(("avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "abm", "movbe", "xsave"))
_V4 = _V3 | {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}
LEVELS: Mapping[Level, frozenset[str]] = {"avx2": _V3, "avx512": _V4}
# Inductor's name of an instruction set -> Linux's name of the CPU flag.
_CPU_FLAGS = {"avx512": "avx512f"}


def lacking_cpu(built_for: str) -> list[str]:
    """Return what of an architecture such as "x86_64 avx512 avx512_vnni" this machine's CPU does not have."""
    machine, *sets = built_for.split() or [""]
    lacking = [machine] * (machine != platform.machine())
    for level, needed in LEVELS.items():
        if sets == [level]:
            return lacking + sorted(needed - cpu_flags())
    return lacking + [name for name in sets if _CPU_FLAGS.get(name, name) not in cpu_flags()]


@cache
def cpu_flags() -> frozenset[str]:
    """Return the CPU's flags, by Linux's names."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    flags = next((line for line in lines if line.startswith(("flags", "Features"))), ":")
    return frozenset(flags.partition(":")[2].split())
