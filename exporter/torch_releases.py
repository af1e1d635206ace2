"""The releases of torch that Slipway supports, by name: "2.13" is any build of any 2.13.x."""

import re
from importlib.metadata import PackageNotFoundError, version
from typing import Annotated

from pydantic import Field

# Each has its pins in requirements/; docs/torch-versions.md says how far it was tried.
SUPPORTED = ("2.11", "2.12", "2.13", "2.14")
DEFAULT = "2.13"  # what `make install` takes, and the images

TorchRelease = Annotated[str, Field(pattern=r"^[0-9]{1,2}\.[0-9]{1,3}$")]

_RELEASE = re.compile(r"[0-9]{1,2}\.[0-9]{1,3}(?![0-9])")


def release_of(version_text: str) -> TorchRelease | None:
    """Return the release that a version belongs to: "2.13" for "2.13.0+cpu"; None for what is no version."""
    found = _RELEASE.match(version_text)
    return found[0] if found else None


def installed_release() -> TorchRelease | None:
    """Return the release that is installed, without importing torch; None if there is none."""
    try:
        return release_of(version("torch"))
    except PackageNotFoundError:
        return None
