"""Calls of a loaded package through its own C interface, without Python's lock and without C++ exceptions.

torch's Python binding holds the lock during a call, so that calls of two threads never overlap. The functions
called here are those that every package exports for C. Two values that they take are read out of torch's
loader: the package's container and the executor of operators that its code does not contain. Where torch lays
its loader out in another way, nothing is found, and packages are called by torch's binding instead.
"""

import ctypes
import os
import platform
import queue
import struct
from collections.abc import Sequence
from ctypes import POINTER, byref, c_bool, c_char_p, c_size_t, c_void_p, py_object
from functools import cache
from pathlib import Path

import torch
from torch import Tensor

_NEW_HANDLES = (
    "_ZN5torch12aot_inductor37unsafe_alloc_new_handles_from_tensorsERKSt6vectorIN2at6TensorESaIS3_EE"
)
_FREE = "_ZdlPv"
_FUNCTIONS = _RUN, _INPUTS, _OUTPUTS, _CONSTANTS, _IS_FOLDED, _FOLD, _ERROR = (
    "AOTInductorModelContainerRun",
    "AOTInductorModelContainerGetNumInputs",
    "AOTInductorModelContainerGetNumOutputs",
    "AOTInductorModelContainerGetNumConstants",
    "AOTInductorModelContainerGetConstantFromFolded",
    "AOTInductorModelContainerRunConstantFolding",
    "AOTInductorGetLastError",
)
# All functions whose addresses torch's loader keeps.
_KEPT = (
    *("Run", "RunSingleThreaded", "CreateWithDevice", "Delete", "GetNumOutputs", "GetNumConstants"),
    *("GetConstantName", "GetConstantOriginalFQN", "GetConstantDtype", "ExtractConstantsMap"),
    *("UpdateUserManagedConstantBuffer", "UpdateConstantBuffer", "UpdateConstantBufferFromCpu"),
    *("UpdateInactiveConstantBuffer", "RunConstantFolding", "SwapConstantBuffer"),
    *("FreeInactiveConstantBuffer", "GetCallSpec", "GetConstantsBlobSize"),
)
_FROM_BLOB = "AOTInductorModelUpdateConstantsFromBlob"
_POINTER = ctypes.sizeof(c_void_p)
_HEAD = 2 * _POINTER  # of a Python object; behind it pybind11 keeps the address of the C++ object
_RUNNER_PLACE = 4  # of the runner's address in torch's loader, in words: a std::string is in front of it
_RUNNER_WORDS = 32  # of a runner that are searched


class _Vector(ctypes.Structure):
    """A std::vector of pointers."""

    _fields_ = (("begin", c_void_p), ("end", c_void_p), ("capacity", c_void_p))


class _Frame:
    """Room for the arguments and results of one call, for one call at a time."""

    def __init__(self, inputs: int, outputs: int) -> None:
        self.addresses = (c_void_p * inputs)()
        begin = ctypes.addressof(self.addresses)
        end = begin + inputs * _POINTER
        self._given = _Vector(begin, end, end)
        self.handles = _Vector()
        self.outputs = (c_void_p * outputs)()
        self.given_here, self.handles_here = byref(self._given), byref(self.handles)
        self.outputs_here = c_void_p(ctypes.addressof(self.outputs))


class NativeCalls:
    """The C interface of one loaded package."""

    def __init__(self, library: ctypes.CDLL, container: int, executor: int, *, calls_at_once: int) -> None:
        """Use a package's open library, the address of its container, and of its executor (or 0)."""
        self._container, self._executor = c_void_p(container), c_void_p(executor)
        self._run = getattr(library, _RUN)
        self._run.argtypes = [c_void_p, c_void_p, c_size_t, c_void_p, c_size_t, c_void_p, c_void_p]
        self._error = getattr(library, _ERROR)
        self._error.argtypes = [POINTER(c_char_p)]
        self._inputs, self._outputs = (self._count(getattr(library, name)) for name in (_INPUTS, _OUTPUTS))
        self._new_handles, self._free = _functions()
        self._new_capsule = _capsule_function()
        # A container whose calls fail forgets to wake threads that wait for it: none may wait there.
        self._frames: queue.SimpleQueue[_Frame] = queue.SimpleQueue()
        for _ in range(calls_at_once):
            self._frames.put(_Frame(self._inputs, self._outputs))
        if self._has_folded_constants(library):
            fold = getattr(library, _FOLD)
            fold.argtypes = [c_void_p, c_bool, c_void_p, c_void_p]
            # They depend on weights only; the first call would compute them otherwise.
            self._require_success(fold(self._container, False, None, self._executor))  # noqa: FBT003  C's way

    def call(self, values: Sequence[Tensor]) -> list[Tensor]:
        """Call the package; raise RuntimeError if it refuses the values."""
        frame = self._frames.get()
        try:
            frame.addresses[:] = [value._cdata for value in values]
            self._new_handles(frame.handles_here, frame.given_here)
            # The package takes over what the handles stand for, and their array is freed here.
            handles = frame.handles.begin
            failed = self._run(
                self._container,
                handles,
                self._inputs,
                frame.outputs_here,
                self._outputs,
                None,
                self._executor,
            )
            self._free(handles)
            if failed:
                self._require_success(failed)
            found: list[Tensor] = torch._C._aoti.alloc_tensors_by_stealing_from_void_ptrs(
                [self._new_capsule(handle, None, None) for handle in frame.outputs]
            )
            return found
        finally:
            self._frames.put(frame)

    def _count(self, ask: "ctypes._NamedFuncPointer") -> int:
        count = c_size_t()
        ask.argtypes = [c_void_p, POINTER(c_size_t)]
        ask(self._container, byref(count))
        return count.value

    def _has_folded_constants(self, library: ctypes.CDLL) -> bool:
        ask, is_folded = getattr(library, _IS_FOLDED), c_bool()
        ask.argtypes = [c_void_p, c_size_t, POINTER(c_bool)]
        for number in range(self._count(getattr(library, _CONSTANTS))):
            ask(self._container, number, byref(is_folded))
            if is_folded.value:
                return True
        return False

    def _require_success(self, failed: int) -> None:
        if failed:
            text = c_char_p()
            self._error(byref(text))  # of this thread's last call
            raise RuntimeError((text.value or b"unknown error").decode(errors="replace"))


def find_native_calls(loader: object, path: Path, *, calls_at_once: int) -> NativeCalls | None:
    """Return the C interface of the package that torch's `loader` has loaded from the library at `path`.

    Return None where calls by it are not possible on this machine, with this torch.
    """
    if platform.machine() != "x86_64" or not hasattr(_torch_library(), _NEW_HANDLES):
        return None
    library = ctypes.CDLL(str(path))  # open already: this is the same library
    if not all(hasattr(library, name) for name in _FUNCTIONS):
        return None
    names = (f"AOTInductorModelContainer{name}" for name in _KEPT)
    known = {_address_of(library, name) for name in (*names, _FROM_BLOB, _ERROR)}
    [address] = _read_words(id(loader) + _HEAD, 1)
    *_, runner = _read_words(address, _RUNNER_PLACE + 1)
    words = _read_words(runner, _RUNNER_WORDS)
    first = next((place for place, word in enumerate(words) if word and word in known), len(words))
    # Functions lie one behind the other, 0 for those that a library lacks. Behind them are the container, the
    # executor, and the pointer that owns the executor; what follows belongs to other objects.
    end = next((at for at in range(first, len(words)) if words[at] not in {*known, 0}), len(words))
    if _address_of(library, _RUN) not in words[first:end] or end + 3 > len(words):
        return None
    container, executor, owner = words[end : end + 3]
    if executor != owner:
        return None
    return NativeCalls(library, container, executor, calls_at_once=calls_at_once)


def _address_of(library: ctypes.CDLL, name: str) -> int:
    try:
        return ctypes.cast(getattr(library, name), c_void_p).value or 0
    except AttributeError:
        return 0


def _read_words(address: int, count: int) -> tuple[int, ...]:
    """Read words of this process's memory; none where it has no memory."""
    try:
        with Path("/proc/self/mem").open("rb", buffering=0) as memory:
            data = os.pread(memory.fileno(), count * _POINTER, address)
    except (OSError, OverflowError):
        return (0,) * count
    return struct.unpack(f"{len(data) // _POINTER}P", data[: len(data) // _POINTER * _POINTER])


@cache
def _torch_library() -> ctypes.PyDLL:
    """Return torch's library; its functions called by it keep Python's lock, because they take no time."""
    return ctypes.PyDLL(str(Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"))


@cache
def _functions() -> "tuple[ctypes._FuncPointer, ctypes._FuncPointer]":
    new_handles, free = getattr(_torch_library(), _NEW_HANDLES), getattr(_torch_library(), _FREE)
    # A result that is not trivial is written to the address that is the first argument.
    new_handles.restype, new_handles.argtypes = None, [POINTER(_Vector), POINTER(_Vector)]
    free.restype, free.argtypes = None, [c_void_p]
    return new_handles, free


@cache
def _capsule_function() -> "ctypes._FuncPointer":
    new = ctypes.pythonapi.PyCapsule_New
    new.restype, new.argtypes = py_object, [c_void_p, c_void_p, c_void_p]
    return new
