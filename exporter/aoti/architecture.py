"""What compiled code runs on, and whether this machine is such a one."""

import platform
from pathlib import Path

import torch

from exporter.aoti.torch_private import cpu_instruction_sets
from exporter.errors import InvalidArtifact, InvalidSpec
from exporter.spec import Device

# Inductor's word for an instruction set -> the flag by which Linux says that a CPU has it.
_CPU_FLAGS = {"avx512": "avx512f"}


def architecture(device: Device) -> str:
    """What the packages compiled here run on: "x86_64 avx512 avx512_vnni", "sm_90", ..."""
    if device is Device.CUDA:
        major, minor = torch.cuda.get_device_capability()
        return f"sm_{major}{minor}"
    return " ".join((platform.machine(), *cpu_instruction_sets()))


def require_runnable(device: Device, built_for: str) -> None:
    """Refuse a package built for another machine; loading it would only warn, and then crash or lie.

    Raises:
        InvalidArtifact: naming what the package needs and this machine lacks.
    """
    if device is Device.CUDA:
        lacking = [] if torch.cuda.is_available() and architecture(device) == built_for else [built_for]
    else:
        machine, *instruction_sets = built_for.split()
        present = _cpu_flags()
        lacking = [name for name in instruction_sets if _CPU_FLAGS.get(name, name) not in present]
        lacking += [machine] if machine != platform.machine() else []
    if lacking:
        raise InvalidArtifact(
            f"the package was built for {built_for}, and this machine lacks {', '.join(lacking)}",
            hint="run it on such a machine, or export on a worker like this one",
        )


def require_device(device: Device) -> torch.device:
    """The device to trace, compile and verify on.

    Raises:
        InvalidSpec: CUDA was asked for and this machine has none.
    """
    if device is Device.CUDA and not torch.cuda.is_available():
        raise InvalidSpec(
            "device is cuda, and this worker has no CUDA device",
            hint="send the job to a worker with a GPU, or export with device cpu",
            where="device",
        )
    return torch.device(device)


def _cpu_flags() -> frozenset[str]:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    flags = next((line for line in lines if line.startswith(("flags", "Features"))), ":")
    return frozenset(flags.partition(":")[2].split())
