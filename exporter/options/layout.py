"""The layout of a tower's files, and the kinds of packages among them."""

from enum import StrEnum
from typing import Annotated

from pydantic import Field

# In Triton, as a folder, and in URLs of a server.
ModelPrefix = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$")]


class Layout(StrEnum):
    """The files of a tower, and by whose rules a server loads them."""

    SLIPWAY = "slipway"  # packages that run one after the other, matched by the manifest's names
    TRITON = "triton"  # a model repository of Triton Inference Server, with a manifest over it
    TORCHEASYREC = "torcheasyrec"  # what TorchEasyRec's own loader reads


class PackageKind(StrEnum):
    """The form of a package's code."""

    AOTI = "aoti"  # compiled by AOTInductor; takes its inputs by position
    TORCHSCRIPT = "torchscript"  # called with a dict of inputs and a device
