"""A worker reports its machine's GPUs."""

import pytest

from worker.machine.gpus import DRIVER, list_gpus


@pytest.mark.gpu
@pytest.mark.skipif(not DRIVER.exists(), reason="this machine has no NVIDIA driver")
def test_every_gpu_tells_its_memory() -> None:
    found = list_gpus()
    assert found and all(0 < gpu.memory_used <= gpu.memory_total and gpu.name for gpu in found)


@pytest.mark.skipif(DRIVER.exists(), reason="this machine has GPUs")
def test_a_machine_without_a_driver_has_none() -> None:
    assert list_gpus() == ()
