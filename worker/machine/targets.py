"""Find which targets this machine can compile for, without torch."""

import os
import platform
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from exporter.aoti.cpu_levels import cpu_levels
from exporter.aoti.probe.start import require_usable_torch
from exporter.errors import TorchUnsupported
from exporter.spec import Device, Target
from exporter.torch_releases import TorchRelease, installed_release
from jobs.route import Route, routes_of_worker
from processes.errors import InvalidSettings
from processes.startup import format_error

_QUERY = ["nvidia-smi", "--query-gpu=compute_cap,memory.total", "--format=csv,noheader,nounits"]
_MIB = 1 << 20
_CGROUP_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


@dataclass(frozen=True, kw_only=True)
class Machine:
    """One machine, and the targets that its worker takes jobs for."""

    device: Device
    targets: tuple[Target, ...]
    architecture: str
    memory: int | None  # bytes: the smallest GPU's, or what processes may use here
    torch: TorchRelease | None = None  # that is installed
    keeps_to_torch: bool = False  # whether it takes only jobs that name this release

    @property
    def routes(self) -> tuple[Route, ...]:
        """The routes that its worker takes jobs from."""
        return routes_of_worker(self.targets, self.torch, only_named=self.keeps_to_torch)


def usable_torch_or_exit() -> None:
    """Exit if attempts could not use the torch that is installed."""
    try:
        require_usable_torch()
    except TorchUnsupported as error:
        sys.exit(format_error(error))


def machine_or_exit(wanted: Sequence[Target], torch: TorchRelease | None = None) -> Machine:
    """Return this machine with the `wanted` targets, or all of its own, and the release it keeps to if any.

    Exit if it lacks one of the targets, or has another release of torch.
    """
    here = detect_machine()
    installed = installed_release()
    if torch is not None and torch != installed:
        found = f"torch {installed}" if installed else "no torch"
        error = InvalidSettings(
            f"SLIPWAY_TORCH: {torch}, and {found} is installed here",
            hint="correct the variable, or start the worker from an installation with that release",
            where="SLIPWAY_TORCH",
        )
        sys.exit(format_error(error))
    if lacking := [target for target in wanted if target not in here.targets]:
        own = ", ".join(here.targets)
        error = InvalidSettings(
            f"SLIPWAY_TARGETS: this machine cannot compile for {', '.join(lacking)}; it can for {own}",
            hint="a worker takes jobs only for its own machine: correct the variable, or move the worker",
            where="SLIPWAY_TARGETS",
        )
        sys.exit(format_error(error))
    return replace(narrow_machine(here, wanted), torch=installed, keeps_to_torch=torch is not None)


def narrow_machine(machine: Machine, wanted: Sequence[Target]) -> Machine:
    """Return the machine with only the wanted targets; with all of its own if none are named."""
    return replace(machine, targets=tuple(wanted)) if wanted else machine


def detect_machine() -> Machine:
    """Describe this machine: with GPUs it compiles for them, without any for its CPU."""
    if Path("/dev/nvidiactl").exists() and (found := parse_gpus(_query_nvidia_smi())):
        return describe_gpu_machine(found)
    levels = cpu_levels()
    return Machine(
        device=Device.CPU,
        targets=("cpu", *levels),
        architecture=" ".join((platform.machine(), *levels)),
        memory=_usable_memory(),
    )


@dataclass(frozen=True)
class DetectedGpu:
    """One GPU as nvidia-smi reports it."""

    target: Target
    memory: int | None  # bytes; None if it has no memory of its own


def describe_gpu_machine(gpus: Sequence[DetectedGpu]) -> Machine:
    """Describe a machine with these GPUs; of several kinds, only the first counts, as torch uses that one."""
    alike = [gpu for gpu in gpus if gpu.target == gpus[0].target]
    own = [gpu.memory for gpu in alike if gpu.memory is not None]
    return Machine(
        device=Device.CUDA,
        targets=("cuda", gpus[0].target),
        architecture=gpus[0].target,
        memory=min(own) if own else _usable_memory(),
    )


def parse_gpus(answer: str) -> tuple[DetectedGpu, ...]:
    """Parse nvidia-smi's lines, such as `9.0, 143771`; `[N/A]` is a GPU that uses the machine's memory."""
    rows = [line.split(",") for line in answer.splitlines() if line.strip()]
    return tuple(
        DetectedGpu(target="sm_" + capability.strip().replace(".", ""), memory=_mebibytes(memory.strip()))
        for capability, memory in rows
    )


def _mebibytes(text: str) -> int | None:
    return int(text) * _MIB if text.isdigit() else None


def _query_nvidia_smi() -> str:
    try:
        return subprocess.run(_QUERY, capture_output=True, text=True, check=True, timeout=30).stdout
    except (OSError, subprocess.SubprocessError):
        return ""


def _usable_memory() -> int | None:
    """Return the bytes that processes may use here: the container's limit, or else the machine's memory."""
    installed = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for path in map(Path, _CGROUP_LIMITS):
        if path.exists() and (text := path.read_text().strip()).isdigit():
            return min(int(text), installed)
    return installed
