"""Call a loaded package without Python's lock, as threads of a C++ server do.

torch's Python loader holds the lock during a call, so that calls of two Python threads never overlap. The
same function of the same loader is called here through its C++ symbol: torch's private ABI.
"""

import ctypes
import platform
from collections.abc import Sequence
from ctypes import POINTER, byref, c_size_t, c_void_p, py_object
from functools import cache
from pathlib import Path

import torch
from torch import Tensor

_RUN = "_ZN5torch8inductor22AOTIModelPackageLoader3runERKSt6vectorIN2at6TensorESaIS4_EEPv"
_POINTER = ctypes.sizeof(c_void_p)
_HEAD = 2 * _POINTER  # of a Python object; behind it pybind11 keeps the address of the C++ object


class _Tensors(ctypes.Structure):
    """A std::vector<at::Tensor>: each element is the address of a TensorImpl, which it owns."""

    _fields_ = (("begin", c_void_p), ("end", c_void_p), ("capacity", c_void_p))


@cache
def _library() -> ctypes.CDLL | None:
    """Return torch's library with types of its functions; None where results are returned in another way."""
    library = ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"))
    if platform.machine() != "x86_64" or not hasattr(library, _RUN):
        return None
    run = getattr(library, _RUN)
    # A result that is not trivial is written to the address that is the first argument.
    run.restype, run.argtypes = None, [POINTER(_Tensors), c_void_p, POINTER(_Tensors), c_void_p]
    library._Znwm.restype, library._Znwm.argtypes = c_void_p, [c_size_t]
    library._ZdlPv.restype, library._ZdlPv.argtypes = None, [c_void_p]
    return library


def can_call_natively() -> bool:
    """Return whether calls without the lock are possible on this machine, with this torch."""
    return _library() is not None


def call_natively(loader: object, inputs: Sequence[Tensor]) -> list[Tensor]:
    """Call a loader's package without the lock; inputs that it refuses end the process."""
    library = _library()
    assert library is not None, "asked before whether it is possible"
    addresses = (c_void_p * len(inputs))(*(each._cdata for each in inputs))
    begin, length = ctypes.addressof(addresses), ctypes.sizeof(addresses)
    given, found = _Tensors(begin, begin + length, begin + length), _Tensors()
    this = ctypes.cast(id(loader) + _HEAD, POINTER(c_void_p)).contents
    getattr(library, _RUN)(byref(found), this, byref(given), None)
    outputs = _take_over(library, found)
    library._ZdlPv(found.begin)
    return outputs


def _take_over(library: ctypes.CDLL, found: _Tensors) -> list[Tensor]:
    """Move each tensor into an allocation of its own, which torch's function for handles frees."""
    handles = []
    for place in range(found.begin or 0, found.end or 0, _POINTER):
        handle = library._Znwm(_POINTER)
        ctypes.memmove(handle, place, _POINTER)
        handles.append(_new_capsule()(handle, None, None))
    tensors: list[Tensor] = torch._C._aoti.alloc_tensors_by_stealing_from_void_ptrs(handles)
    return tensors


@cache
def _new_capsule() -> "ctypes._FuncPointer":
    new = ctypes.pythonapi.PyCapsule_New
    new.restype, new.argtypes = py_object, [c_void_p, c_void_p, c_void_p]
    return new
