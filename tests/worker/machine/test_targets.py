"""The targets that a machine can compile for, and errors for others."""

import pytest

from exporter.aoti.cpu_levels import cpu_levels
from exporter.spec import Device
from exporter.torch_releases import installed_release
from worker.machine.targets import (
    describe_gpu_machine,
    detect_machine,
    machine_or_exit,
    narrow_machine,
    parse_gpus,
)


def test_a_gpu_without_memory_of_its_own_has_the_machines() -> None:
    machine = describe_gpu_machine(parse_gpus("12.1, [N/A]\n"))
    assert machine.targets == ("cuda", "sm_121")
    assert machine.memory is not None and machine.memory > 1 << 30


def test_gpus_are_known_by_their_capability() -> None:
    machine = describe_gpu_machine(parse_gpus("9.0, 143771\n9.0, 143770\n"))
    assert (machine.device, machine.targets) == (Device.CUDA, ("cuda", "sm_90"))
    assert machine.memory == 143770 << 20


def test_of_unlike_gpus_the_first_counts() -> None:
    assert describe_gpu_machine(parse_gpus("8.0, 40000\n9.0, 80000\n")).targets == ("cuda", "sm_80")


def test_a_machine_without_a_gpu_compiles_for_its_cpu() -> None:
    machine = detect_machine()
    if machine.device is Device.CPU:
        assert machine.targets == ("cpu", *cpu_levels())
        assert machine.memory is not None and machine.memory > 1 << 28


def test_a_worker_may_take_less_than_its_machine_can() -> None:
    assert narrow_machine(detect_machine(), ("cpu",)).targets == ("cpu",)


def test_a_worker_keeps_to_the_release_of_torch_that_it_is_told_to() -> None:
    release = installed_release()
    assert release is not None
    assert set(machine_or_exit(("cpu",)).routes) == {"cpu", f"cpu@{release}"}
    assert machine_or_exit(("cpu",), release).routes == (f"cpu@{release}",)


def test_a_worker_with_another_release_of_torch_than_it_is_told_does_not_start() -> None:
    with pytest.raises(
        SystemExit, match=r"invalid_settings.*SLIPWAY_TORCH: 9\.9, and torch 2\.\d+ is installed"
    ):
        machine_or_exit(("cpu",), "9.9")


def test_a_worker_of_a_target_its_machine_is_not_does_not_start() -> None:
    with pytest.raises(SystemExit, match="invalid_settings.*cannot compile for sm_11"):
        machine_or_exit(("sm_11",))
