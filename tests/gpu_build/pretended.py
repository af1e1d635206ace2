"""An H200 that is not there: what torch, Triton and inductor ask of a GPU while they compile, and no more.

Every answer that is made up is in this module. What is compiled is real but for what a GPU would time: where
a kernel has several forms, the first is taken and not the fastest, nor one made for the registers it takes;
and factors of a product are not padded.
"""

from types import SimpleNamespace
from typing import Any

import torch
from torch._dynamo.device_interface import CudaInterface
from torch._inductor.codegen.wrapper import PythonWrapperCodegen
from torch._inductor.fx_passes import pad_mm
from torch._inductor.runtime import triton_heuristics
from torch._subclasses import FakeTensorMode
from triton import runtime
from triton.backends.driver import GPUDriver
from triton.backends.nvidia.driver import CudaDriver

DEVICE = torch.device("cuda", 0)

_SHARED_BYTES = 227 << 10  # that a program may have
_THREADS = 1024
_PROPERTIES = SimpleNamespace(
    name="NVIDIA H200",
    major=9,
    minor=0,
    total_memory=141 << 30,
    multi_processor_count=132,
    regs_per_multiprocessor=65536,
    max_threads_per_multi_processor=2048,
    max_threads_per_block=_THREADS,
    warp_size=32,
    shared_memory_per_block=48 << 10,
    shared_memory_per_block_optin=_SHARED_BYTES,
    shared_memory_per_multiprocessor=228 << 10,
    L2_cache_size=50 << 20,
    is_integrated=False,
    gcnArchName="",
)


def pretend() -> list[str]:
    """Pretend from here on, in this process; what is returned takes the code by which kernels are tuned."""
    _pretend_device()
    runtime.driver.set_active(_Driver())
    return _pretend_tuning()


def _first(*asked: object) -> int:
    """The number of the only device, and of its stream; what was current before, where another is chosen."""
    return 0


def _pretend_device() -> None:
    """Answer what `torch.cuda` asks of CUDA's runtime at its lowest level, so that all above it agrees."""
    torch._C._cuda_getDeviceCount = lambda: 1
    # Inductor enters and leaves the device around what it tunes, and hands kernels its stream.
    for name in ("getDevice", "setDevice", "exchangeDevice", "maybeExchangeDevice", "getCurrentRawStream"):
        setattr(torch._C, f"_cuda_{name}", _first)
    # Two more places have names of their own for these, taken when they were imported.
    for owner, names in (
        (torch.cuda, ("_exchange_device", "_maybe_exchange_device")),
        (CudaInterface, ("exchange_device", "maybe_exchange_device", "get_raw_stream")),
    ):
        for name in names:
            setattr(owner, name, staticmethod(_first) if owner is CudaInterface else _first)
    # Compiling keeps the state of random numbers and puts it back.
    torch.cuda.default_generators = (torch.Generator(),)
    # Initialising asks the driver; what it would have set is set here.
    torch.cuda._initialized = True
    torch.cuda._get_device_properties = lambda index: _PROPERTIES  # type: ignore[attr-defined]  # set when initialised
    # Fake tensors touch no device where `is_available` says there is none, and now it says there is one.
    FakeTensorMode.avoid_device_init = property(lambda self: True)  # type: ignore[method-assign, assignment]  # a property before


class _Utilities:
    """The part of Triton's driver that a kernel passes before its launch; nothing reaches a device."""

    def get_device_properties(self, device: int) -> dict[str, int]:
        """Return the limit on a kernel's shared memory; one that needs more is refused, as on a device."""
        return {"max_shared_mem": _SHARED_BYTES}

    def load_binary(self, name: str, binary: bytes, *given: int) -> tuple[int, int, int, int, int]:
        """Module, function, registers, spilled bytes and most threads: a device would tell."""
        return 1, 1, 0, 0, _THREADS


class _Driver(CudaDriver):  # type: ignore[misc]  # Triton has no types
    """Triton's driver for CUDA without the library that it compiles against the machine's own driver."""

    def __init__(self) -> None:
        self.utils = _Utilities()
        self.launcher_cls = lambda source, metadata: lambda *arguments: None
        GPUDriver.__init__(self)


def _pretend_tuning() -> list[str]:
    """Kernels are compiled in all their forms and none is timed; what they are tuned on has no values."""

    def equally_fast(*asked: object, **options: object) -> float:
        return 1.0

    triton_heuristics.CachingAutotuner.bench = equally_fast  # type: ignore[method-assign]  # no GPU times it
    setattr(pad_mm, "_should_pad", lambda *asked: False)  # noqa: B010  torch says that it never returns
    tuned: list[str] = []
    run: Any = PythonWrapperCodegen.generate_and_run_autotune_block

    def run_on_nothing(writer: PythonWrapperCodegen) -> None:
        tuned.append(f"{writer.kernel_autotune_defs.getvalue()}\n{writer.kernel_autotune_calls.getvalue()}")
        with FakeTensorMode(allow_non_fake_inputs=True):  # that code allocates its inputs on the device
            run(writer)

    PythonWrapperCodegen.generate_and_run_autotune_block = run_on_nothing  # type: ignore[method-assign]  # as above
    return tuned


def on_device(tensor: torch.Tensor, mode: FakeTensorMode) -> torch.Tensor:
    """A tensor of the same layout on the GPU, and no values."""
    with mode:
        fake = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=DEVICE)
    return torch.nn.Parameter(fake, requires_grad=False) if isinstance(tensor, torch.nn.Parameter) else fake
