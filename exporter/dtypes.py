"""The precisions that towers compute in, the kernels of HSTU layers, and the dtypes of table rows."""

from enum import StrEnum


class Precision(StrEnum):
    """The precision that a whole tower is computed in."""

    FP32 = "fp32"
    BF16 = "bf16"  # autocast: matrix products in bf16, sensitive operators and outputs in fp32
    FP16 = "fp16"  # autocast, with fp16 in place of bf16


class Kernel(StrEnum):
    """The implementation of a tower's HSTU layers."""

    TRITON = "triton"  # on CUDA: Slipway's own kernels, which are compiled into the package
    PYTORCH = "pytorch"  # torch's operators


class TableDtype(StrEnum):
    """The dtype in which the rows of an embedding table are stored; lookups return fp32 in any case."""

    FP32 = "fp32"
    FP16 = "fp16"
    INT8 = "int8"  # one byte per number, and a scale and an offset per row in fp32
    INT4 = "int4"  # half a byte per number, and a scale and an offset per row in fp16

    def row_bytes(self, width: int) -> int:
        """Return the bytes that a row of `width` numbers takes, scale and offset included."""
        match self:
            case TableDtype.FP32:
                return 4 * width
            case TableDtype.FP16:
                return 2 * width
            case TableDtype.INT8:
                return width + 8
            case TableDtype.INT4:
                return -(-width // 4) * 2 + 4  # numbers come in fours
