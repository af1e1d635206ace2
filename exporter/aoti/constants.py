"""The constants table of compiled code: which tensors its weights blob holds, in which order and layout."""

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from exporter.errors import CompileFailed

_FIELD = re.compile(r"^\s*constants_info_\[(\d+)\]\.(\w+) = (.*);$", re.MULTILINE)
_DTYPE = re.compile(r"\w*?torch_dtype_(\w+)$")


@dataclass(frozen=True, kw_only=True)
class Constant:
    """One row of the table: a tensor that the code reads, and its place in the blob."""

    fqn: str  # what the traced module calls it
    dtype: torch.dtype
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int  # elements before the first one, of the tensor's own bytes
    size: int  # bytes in the blob, padding included

    @property
    def nbytes(self) -> int:
        """Its own bytes, padding excluded."""
        return math.prod(self.shape) * self.dtype.itemsize

    def differs_from(self, tensor: Tensor) -> str:
        """How `tensor` is not what the code was compiled for; nothing if it is."""
        if tensor.dtype != self.dtype or tuple(tensor.shape) != self.shape:
            return f"{self.fqn} is {_words(tensor.dtype, tensor.shape)}, not {_words(self.dtype, self.shape)}"
        if tensor.numel() and (tensor.stride() != self.stride or not tensor.is_contiguous() or self.offset):
            return f"{self.fqn} has strides {tensor.stride()}, not {self.stride}"
        if tensor.nbytes > self.size:
            return f"{self.fqn} has {tensor.nbytes} bytes, the blob has room for {self.size}"
        return ""


def read_constants_table(code: str) -> tuple[Constant, ...]:
    """The table that AOTInductor wrote into the wrapper's source, without what is folded when loaded.

    Raises:
        CompileFailed: the source is not what this version of torch writes.
    """
    rows: dict[int, dict[str, str]] = {}
    for index, field, value in _FIELD.findall(code):
        rows.setdefault(int(index), {})[field] = value
    try:
        return tuple(
            _constant(rows[index]) for index in range(len(rows)) if rows[index]["from_folded"] == "false"
        )
    except (KeyError, ValueError, AttributeError) as error:
        raise CompileFailed(
            f"the compiled code's table of constants could not be read: {type(error).__name__}: {error}",
            hint="another version of torch may write it differently; use the pinned one",
        ) from error


def find_mismatch(table: Sequence[Constant], tensors: Mapping[str, Tensor]) -> str:
    """Why `tensors` cannot be written into a blob with this table; nothing if they can."""
    for constant in table:
        if constant.fqn not in tensors:
            return f"there is no {constant.fqn}"
        if differs := constant.differs_from(tensors[constant.fqn]):
            return differs
    return ""


def _constant(row: Mapping[str, str]) -> Constant:
    found = _DTYPE.match(row["dtype"])
    dtype = getattr(torch, found[1]) if found else None
    if not isinstance(dtype, torch.dtype):
        raise ValueError(f"dtype {row['dtype']}")  # noqa: TRY004  as every other value that is not understood
    return Constant(
        fqn=str(json.loads(row["original_fqn"])),
        dtype=dtype,
        shape=_numbers(row["shape"]),
        stride=_numbers(row["stride"]),
        offset=int(row["offset"]),
        size=int(row["data_size"]),
    )


def _numbers(braced: str) -> tuple[int, ...]:
    return tuple(int(number.rstrip("L")) for number in braced.strip("{}").split(",") if number.strip())


def _words(dtype: torch.dtype, shape: Sequence[int]) -> str:
    return f"{str(dtype).removeprefix('torch.')} {list(shape)}"
