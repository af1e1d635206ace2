"""Requirements of a package on this machine: hardware, versions, and libraries of operators."""

import importlib
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, version

import torch

from slipway.loading.cpu import lacking_cpu
from slipway.loading.errors import MachineUnfit, OperatorsMissing, VersionsDiffer
from slipway.loading.layout.manifest import Manifest

_FBGEMM = ("fbgemm-gpu", "fbgemm-gpu-cpu")  # distributions, of which one is installed


def require_machine(manifest: Manifest) -> None:
    """Raise MachineUnfit if this machine lacks what the packages were compiled for.

    torch itself only warns, and then crashes or computes wrong numbers.
    """
    built_for = manifest.architecture
    lacking = _lacking_gpu(built_for) if manifest.device == "cuda" else lacking_cpu(built_for)
    if lacking:
        raise MachineUnfit(
            f"the package was built for {built_for}, and this machine lacks {', '.join(lacking)}",
            where="manifest.json: architecture",
        )


def _lacking_gpu(built_for: str) -> list[str]:
    if torch.cuda.is_available():
        major, minor = torch.cuda.get_device_capability()
        if f"sm_{major}{minor}" == built_for:
            return []
    return [built_for]


def require_versions(manifest: Manifest) -> None:
    """Raise VersionsDiffer unless torch, and fbgemm if it is used, are of the export's release."""
    _require_same("torch", manifest.torch, torch.__version__)
    if manifest.device == "cuda":
        _require_same("CUDA of torch", manifest.cuda or "none", torch.version.cuda or "none")
    if any(library.partition(".")[0] == "fbgemm_gpu" for library in manifest.op_libraries):
        _require_same("fbgemm", manifest.fbgemm.rpartition(" ")[2], _fbgemm_version())


def _require_same(name: str, needed: str, found: str) -> None:
    if _release(needed) != _release(found):
        raise VersionsDiffer(
            f"the package was compiled with {name} {needed}, and {found} is installed",
            where="manifest.json: versions",
        )


def _release(version: str) -> list[str]:
    """Return the numbers that name a release: "2.13.0+cpu" and "2.13.1" are builds of 2.13."""
    return version.partition("+")[0].split(".")[:2]


def _fbgemm_version() -> str:
    for distribution in _FBGEMM:
        try:
            return version(distribution)
        except PackageNotFoundError:
            continue
    return "none"


def import_operators(libraries: Iterable[str]) -> None:
    """Import the modules that register operators; raise OperatorsMissing if one cannot be imported."""
    for library in libraries:
        try:
            importlib.import_module(library)
        except Exception as error:  # a module may raise anything while it loads native code
            raise OperatorsMissing(
                f"the package needs operators of {library}, which cannot be imported: {error}",
                where="manifest.json: op_libraries",
            ) from error
