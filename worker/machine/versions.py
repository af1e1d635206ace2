"""Which versions this worker runs, without importing what it names."""

import platform
from importlib.metadata import PackageNotFoundError, version

from exporter.version import __version__

_PACKAGES = ("torch", "torchrec", "fbgemm-gpu", "fbgemm-gpu-cpu", "triton")


def installed_versions() -> dict[str, str]:
    """Of the packages that exports depend on, as far as they are there."""
    return {package: found for package in _PACKAGES if (found := _version(package))}


def all_versions() -> dict[str, str]:
    """The same, with Slipway's own and Python's."""
    return {"slipway": __version__, "python": platform.python_version(), **installed_versions()}


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
