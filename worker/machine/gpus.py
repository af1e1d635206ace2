"""Describe this machine's GPUs by NVIDIA's management library; the worker itself never loads torch."""

from pathlib import Path

from jobs.fleet.roster import Gpu
from telemetry.logging import logger

DRIVER = Path("/dev/nvidiactl")

log = logger(__name__)


def list_gpus() -> tuple[Gpu, ...]:
    """Return all GPUs; none where there is no driver, no management library, or no answer."""
    if not DRIVER.exists():
        return ()
    try:
        import pynvml  # not loaded on machines without a driver
    except ImportError:
        return ()
    try:
        pynvml.nvmlInit()
        try:
            return tuple(_describe_gpu(index) for index in range(pynvml.nvmlDeviceGetCount()))
        finally:
            pynvml.nvmlShutdown()
    except pynvml.NVMLError as error:
        log.debug("gpus_unknown", message=str(error))
        return ()


def _describe_gpu(index: int) -> Gpu:
    import pynvml  # see `list_gpus`

    handle = pynvml.nvmlDeviceGetHandleByIndex(index)
    memory = pynvml.nvmlDeviceGetMemoryInfo(handle)
    try:
        busy = pynvml.nvmlDeviceGetUtilizationRates(handle).gpu / 100
    except pynvml.NVMLError:  # a MIG slice reports no utilization
        busy = None
    name = pynvml.nvmlDeviceGetName(handle)
    return Gpu(index=index, name=name, memory_total=memory.total, memory_used=memory.used, busy=busy)
