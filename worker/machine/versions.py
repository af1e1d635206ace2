"""Find the versions that this worker runs, without importing the packages."""

import platform
from importlib.metadata import PackageNotFoundError, version

from exporter.version import __version__

_PACKAGES = ("torch", "torchrec", "fbgemm-gpu", "fbgemm-gpu-cpu", "triton")


def installed_versions() -> dict[str, str]:
    """Return the versions of those packages that exports depend on and that are installed."""
    return {package: found for package in _PACKAGES if (found := _version(package))}


def all_versions() -> dict[str, str]:
    """Return the installed versions with those of Slipway and Python."""
    return {"slipway": __version__, "python": platform.python_version(), **installed_versions()}


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
