"""The hardware that compiled code needs, and whether this machine has it."""

import platform
import subprocess
import sys

import torch

from exporter.aoti.cpu_levels import cpu_levels
from exporter.aoti.inductor.instruction_sets import cpu_instruction_sets
from exporter.errors import InvalidArtifact, TorchUnsupported, WrongArchitecture
from exporter.spec import Device, Target, device_of
from exporter.torch_releases import TorchRelease, release_of
from slipway.loading.cpu import lacking_cpu

_ASK_DRIVER = """
import ctypes
driver, device, found = ctypes.CDLL("libcuda.so.1"), ctypes.c_int(), [ctypes.c_int(), ctypes.c_int()]
for failed in (
    driver.cuInit(0),
    driver.cuDeviceGet(ctypes.byref(device), 0),
    driver.cuDeviceGetAttribute(ctypes.byref(found[0]), 75, device),  # COMPUTE_CAPABILITY_MAJOR
    driver.cuDeviceGetAttribute(ctypes.byref(found[1]), 76, device),  # COMPUTE_CAPABILITY_MINOR
):
    if failed:
        raise SystemExit(f"the driver gives error {failed}")
print(f"sm_{found[0].value}{found[1].value}")
"""


def architecture(device: Device, target: Target = "cpu") -> str:
    """Return the hardware that packages compiled here need: "x86_64 avx512 avx512_vnni", "sm_90", ..."""
    if device is Device.CUDA:
        return _gpu_architecture() if torch.cuda.is_initialized() else _gpu_architecture_from_child()
    sets = cpu_instruction_sets() if target == "cpu" else (target,)
    return " ".join((platform.machine(), *sets))


def require_runnable(device: Device, built_for: str) -> None:
    """Refuse a package built for other hardware; torch only warns, and then crashes or computes garbage.

    Raises:
        InvalidArtifact: this machine lacks hardware that the package needs; the message names it.
    """
    if device is Device.CUDA:
        lacking = [] if torch.cuda.is_available() and _gpu_architecture() == built_for else [built_for]
    else:
        lacking = lacking_cpu(built_for)
    if lacking:
        raise InvalidArtifact(
            f"the package was built for {built_for}, and this machine lacks {', '.join(lacking)}",
            hint="run it on such a machine, or export on a worker like this one",
        )


def require_target(target: Target) -> torch.device:
    """Return the device to trace, compile and verify on; a package is only built where it can be verified.

    Raises:
        WrongArchitecture: this machine does not have the hardware of the target.
    """
    own: tuple[str, ...]
    if device_of(target) is Device.CUDA:
        own = ("cuda", _gpu_architecture()) if torch.cuda.is_available() else ()
    else:
        own = ("cpu", *cpu_levels())
    if target not in own:
        raise WrongArchitecture(
            f"the target is {target}, and this machine compiles for {', '.join(own) or 'no GPU'}",
            hint=f"send the job to a worker for {target}",
            where="target" if target not in ("cpu", "cuda") else "device",
        )
    return torch.device(device_of(target))


def require_torch(release: TorchRelease | None) -> None:
    """Refuse to compile with another release of torch than the one that is asked for, if one is.

    Raises:
        TorchUnsupported: another one runs here.
    """
    if release is not None and release != (here := release_of(torch.__version__)):
        raise TorchUnsupported(
            f"packages are to be compiled with torch {release}, and torch {here} runs here",
            hint="send the job to a worker that has the release, or leave `torch` out",
            where="torch",
        )


def _gpu_architecture() -> str:
    """Ask torch for this machine's GPU; that starts CUDA here, after which forks cannot use it."""
    major, minor = torch.cuda.get_device_capability()
    return f"sm_{major}{minor}"


def _gpu_architecture_from_child() -> str:
    """Ask the driver in a child process for this machine's GPU, so that forks of this one can use it."""
    answer = subprocess.run([sys.executable, "-c", _ASK_DRIVER], capture_output=True, text=True, check=False)
    if answer.returncode != 0:
        last_line = answer.stderr.strip().rpartition("\n")[2]
        raise WrongArchitecture(
            f"the driver of this machine's GPU does not tell its architecture: {last_line}", where="device"
        )
    return answer.stdout.strip()
