"""Errors for lack of memory are distinguished from all others, whichever library raises them."""

import pytest
import torch

from exporter.aoti.out_of_memory import as_out_of_memory
from exporter.errors import CompileFailed, OutOfMemory
from exporter.outcome import Failure

# Of torch's allocator; of CUDA's runtime and driver, as a package calls them; of cuBLAS and of a compiler.
SAID = (
    "CUDA out of memory. Tried to allocate 20.00 GiB. GPU 0 has a total capacity of 139.80 GiB of which 8.00 "
    "GiB is free.\nException raised from malloc at CUDACachingAllocator.cpp:1",
    "CUDA error: out of memory",
    "CUDA driver error: out of memory",
    "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
    "C++ compile error\n\ncc1plus: out of memory allocating 65536 bytes after a total of 1 bytes",
    "std::bad_alloc",
)


@pytest.mark.parametrize("text", SAID)
def test_whoever_says_it_is_understood(text: str) -> None:
    memory = as_out_of_memory(RuntimeError(text), "compiling")
    assert memory is not None and memory.message.startswith("compiling: ")
    assert "Exception raised" not in memory.message and "compile error" not in memory.message


def test_what_this_torch_says_on_a_cpu_is_understood() -> None:
    with pytest.raises(RuntimeError) as raised:
        torch.empty(1 << 50)
    assert as_out_of_memory(raised.value) is not None


def test_it_is_found_below_other_errors() -> None:
    try:
        try:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
        except RuntimeError as error:
            raise CompileFailed("a backend raised") from error
    except CompileFailed as error:
        memory = as_out_of_memory(error)
    assert memory is not None
    assert Failure.of(memory).code == "out_of_memory" and Failure.of(memory).retryable


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("input_handles[0]: dim value is too large at 0, expected to be <= 64, but got: 65"),
        RuntimeError("out of resource: shared memory, Required: 300000"),
        CompileFailed("KeyError: memory"),
        OSError("No space left on device"),
    ],
)
def test_a_refusal_is_none(error: Exception) -> None:
    assert as_out_of_memory(error) is None


def test_one_that_is_known_stays_as_it_is() -> None:
    known = OutOfMemory("x", where="batch_64")
    assert as_out_of_memory(known, "compiling") is known
