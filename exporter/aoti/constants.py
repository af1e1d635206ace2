"""The constants table of compiled code: the tensors of its weights blob, their order and layout."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from exporter.errors import CompileFailed
from slipway.loading.dtypes import dtype_of
from slipway.loading.layout.constants_table import ConstantRow, read_rows


@dataclass(frozen=True, kw_only=True)
class Constant:
    """One row of the table: a tensor that the code reads, and its place in the blob."""

    fqn: str  # fully qualified name in the traced module
    dtype: torch.dtype
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int  # storage offset, in elements
    size: int  # bytes in the blob, padding included

    @property
    def nbytes(self) -> int:
        """Bytes of the values, without padding."""
        return math.prod(self.shape) * self.dtype.itemsize

    def differs_from(self, tensor: Tensor) -> str:
        """Describe how `tensor` differs from what the code was compiled for; return "" if it fits."""
        if tensor.dtype != self.dtype or tuple(tensor.shape) != self.shape:
            return f"{self.fqn} is {_words(tensor.dtype, tensor.shape)}, not {_words(self.dtype, self.shape)}"
        if tensor.numel() and (tensor.stride() != self.stride or not tensor.is_contiguous() or self.offset):
            return f"{self.fqn} has strides {tensor.stride()}, not {self.stride}"
        if tensor.nbytes > self.size:
            return f"{self.fqn} has {tensor.nbytes} bytes, the blob has room for {self.size}"
        return ""


def read_constants_table(code: str) -> tuple[Constant, ...]:
    """Read the table from the wrapper's source, without constants that are folded at load time.

    Raises:
        CompileFailed: the source is not in the form that this version of torch writes.
    """
    try:
        return tuple(map(_constant, read_rows(code)))
    except ValueError as error:
        raise CompileFailed(
            f"the compiled code's table of constants could not be read: {type(error).__name__}: {error}",
            hint="another version of torch may write it differently; use the pinned one",
        ) from error


def find_mismatch(table: Sequence[Constant], tensors: Mapping[str, Tensor]) -> str:
    """Describe why `tensors` do not fit into a blob with this table; return "" if they fit."""
    for constant in table:
        if constant.fqn not in tensors:
            return f"there is no {constant.fqn}"
        if differs := constant.differs_from(tensors[constant.fqn]):
            return differs
    return ""


def _constant(row: ConstantRow) -> Constant:
    return Constant(
        fqn=row.fqn,
        dtype=dtype_of(row.dtype),
        shape=row.shape,
        stride=row.stride,
        offset=row.offset,
        size=row.size,
    )


def _words(dtype: torch.dtype, shape: Sequence[int]) -> str:
    return f"{str(dtype).removeprefix('torch.')} {list(shape)}"
