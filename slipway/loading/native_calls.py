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
from operator import attrgetter
from pathlib import Path

import torch
from torch import Tensor

_NEW_HANDLES = (
    "_ZN5torch12aot_inductor37unsafe_alloc_new_handles_from_tensorsERKSt6vectorIN2at6TensorESaIS3_EE"
)
_COPY_HANDLE, _FREE = "aoti_torch_new_tensor_handle", "_ZdlPv"
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
_ADDRESS = attrgetter("_cdata")  # of a tensor's C++ object
_POINTER = ctypes.sizeof(c_void_p)
_HEAD = 2 * _POINTER  # of a Python object; behind it pybind11 keeps the address of the C++ object
_RUNNER_PLACE = 4  # of the runner's address in torch's loader, in words: a std::string is in front of it
_RUNNER_WORDS = 32  # of a runner that are searched


class _Vector(ctypes.Structure):
    """A std::vector of pointers."""

    _fields_ = (("begin", c_void_p), ("end", c_void_p), ("capacity", c_void_p))


class _Frame:
    """Room for the arguments and results of a package's call, for one call at a time."""

    def __init__(self, inputs: int, outputs: int) -> None:
        self.inputs = (c_void_p * inputs)()
        begin = ctypes.addressof(self.inputs)
        end = begin + inputs * _POINTER
        self._given = _Vector(begin, end, end)
        self.handles = _Vector()
        self.outputs = (c_void_p * outputs)()
        self.given_here, self.handles_here = byref(self._given), byref(self.handles)
        self.inputs_here, self.outputs_here = (
            c_void_p(ctypes.addressof(each)) for each in (self.inputs, self.outputs)
        )


class NativePackage:
    """The C interface of one loaded package; `NativeCalls` calls it."""

    def __init__(self, library: ctypes.CDLL, container: int, executor: int) -> None:
        """Use a package's open library, the address of its container, and of its executor (or 0)."""
        self._container, self._executor = c_void_p(container), c_void_p(executor)
        self._run = getattr(library, _RUN)
        self._run.argtypes = [c_void_p, c_void_p, c_size_t, c_void_p, c_size_t, c_void_p, c_void_p]
        self._error = getattr(library, _ERROR)
        self._error.argtypes = [POINTER(c_char_p)]
        self.inputs, self.outputs = (self._count(getattr(library, name)) for name in (_INPUTS, _OUTPUTS))
        if self._has_folded_constants(library):
            fold = getattr(library, _FOLD)
            fold.argtypes = [c_void_p, c_bool, c_void_p, c_void_p]
            # They depend on weights only; the first call would compute them otherwise.
            self._require_success(fold(self._container, False, None, self._executor))  # noqa: FBT003  C's way

    def run(self, handles: c_void_p | int, outputs: c_void_p) -> None:
        """Run with an array of handles, which the package takes over, and write those of its outputs.

        Raises:
            RuntimeError: the package refuses the inputs, or fails.
        """
        failed = self._run(self._container, handles, self.inputs, outputs, self.outputs, None, self._executor)
        if failed:
            self._require_success(failed)

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


class NativeCalls:
    """Calls of packages, one behind the other, of which each takes all outputs of the one before it.

    Tensors between packages never become Python's.
    """

    def __init__(
        self, packages: Sequence[NativePackage], orders: Sequence[Sequence[int]], *, calls_at_once: int
    ) -> None:
        """Call these packages; `orders` has the places of a later one's inputs in the outputs before it."""
        self._first, *later = packages
        self._later = tuple(zip(later, orders, strict=True))
        self._new_handles, self._copy_handle, self._free = _functions()
        self._new_capsule = _capsule_function()
        # A container whose calls fail forgets to wake threads that wait for it: none may wait there.
        self._frames: queue.SimpleQueue[tuple[_Frame, ...]] = queue.SimpleQueue()
        for _ in range(calls_at_once):
            self._frames.put(tuple(_Frame(each.inputs, each.outputs) for each in packages))

    def call(self, values: Sequence[Tensor]) -> list[Tensor]:
        """Return the last package's outputs; raise RuntimeError if a package refuses its inputs or fails."""
        frames = self._frames.get()
        try:
            frame, *others = frames
            frame.inputs[:] = list(map(_ADDRESS, values))
            self._new_handles(frame.handles_here, frame.given_here)
            handles = frame.handles.begin
            try:
                self._first.run(handles, frame.outputs_here)
            finally:
                self._free(handles)  # the array; the package takes over what it holds
            for (package, order), following in zip(self._later, others, strict=True):
                outputs = frame.outputs[:]
                if len(set(outputs)) < len(outputs):  # one tensor twice, which would be freed twice
                    outputs = self._separate(outputs)
                following.inputs[:] = [outputs[place] for place in order]
                package.run(following.inputs_here, following.outputs_here)
                frame = following
            return self._tensors(frame.outputs[:])
        finally:
            self._frames.put(frames)

    def _tensors(self, handles: Sequence[int | None]) -> list[Tensor]:
        """Return the tensors that handles stand for, and give up the handles."""
        capsules = [self._new_capsule(handle, None, None) for handle in handles]
        tensors: list[Tensor] = torch._C._aoti.alloc_tensors_by_stealing_from_void_ptrs(capsules)
        return tensors

    def _separate(self, handles: Sequence[int | None]) -> list[int | None]:
        """Return handles of which no two are the same: a copy where one came before."""
        separate: list[int | None] = []
        for handle in handles:
            if handle in separate:
                copy = c_void_p()
                self._copy_handle(handle, byref(copy))
                separate.append(copy.value)
            else:
                separate.append(handle)
        return separate


def find_native_package(loader: object, path: Path) -> NativePackage | None:
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
    return NativePackage(library, container, executor)


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
def _functions() -> "tuple[ctypes._FuncPointer, ctypes._FuncPointer, ctypes._FuncPointer]":
    new, copy, free = (getattr(_torch_library(), name) for name in (_NEW_HANDLES, _COPY_HANDLE, _FREE))
    # A result that is not trivial is written to the address that is the first argument.
    new.restype, new.argtypes = None, [POINTER(_Vector), POINTER(_Vector)]
    copy.argtypes = [c_void_p, POINTER(c_void_p)]
    free.restype, free.argtypes = None, [c_void_p]
    return new, copy, free


@cache
def _capsule_function() -> "ctypes._FuncPointer":
    new = ctypes.pythonapi.PyCapsule_New
    new.restype, new.argtypes = py_object, [c_void_p, c_void_p, c_void_p]
    return new
