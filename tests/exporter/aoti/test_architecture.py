"""A package of another machine is refused before it is loaded, and a target where it cannot be tried."""

import platform

import pytest
import torch

from exporter.aoti.architecture import architecture, require_runnable, require_target
from exporter.errors import InvalidArtifact, WrongArchitecture
from exporter.spec import Device

no_gpu = pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")


@no_gpu
def test_a_package_for_a_gpu_is_refused_where_there_is_none() -> None:
    with pytest.raises(InvalidArtifact, match="built for sm_90, and this machine lacks sm_90"):
        require_runnable(Device.CUDA, "sm_90")


@no_gpu
@pytest.mark.parametrize("target", ["cuda", "sm_90"])
def test_nothing_is_exported_for_a_gpu_where_there_is_none(target: str) -> None:
    with pytest.raises(WrongArchitecture, match="compiles for no GPU"):
        require_target(target)


@no_gpu
def test_where_no_driver_answers_it_is_said_so() -> None:
    with pytest.raises(WrongArchitecture, match="does not tell its architecture: .*libcuda"):
        architecture(Device.CUDA)


def test_a_gpu_that_is_not_the_packages_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (8, 0))
    require_runnable(Device.CUDA, "sm_80")
    with pytest.raises(InvalidArtifact, match="sm_90"):
        require_runnable(Device.CUDA, "sm_90")


def test_a_package_for_instructions_that_are_not_here_is_refused() -> None:
    require_runnable(Device.CPU, platform.machine())
    with pytest.raises(InvalidArtifact, match="lacks amx_bf99"):
        require_runnable(Device.CPU, f"{platform.machine()} amx_bf99")
