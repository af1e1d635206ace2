"""What towers compute in and by which kernels, and what the rows of their tables are kept in."""

from enum import StrEnum


class Precision(StrEnum):
    """What a whole tower is computed in."""

    FP32 = "fp32"
    BF16 = "bf16"  # autocast: products in bf16, what would suffer from it in fp32; outputs stay fp32
    FP16 = "fp16"  # the same with fp16


class Kernel(StrEnum):
    """What computes the HSTU layers of a tower."""

    TRITON = "triton"  # on CUDA: Slipway's own kernels, which are compiled into the package
    PYTORCH = "pytorch"  # torch's operators


class TableDtype(StrEnum):
    """What the rows of an embedding table are kept in; what is looked up is fp32 in any case."""

    FP32 = "fp32"
    FP16 = "fp16"
    INT8 = "int8"  # one byte per number, and a scale and an offset per row in fp32
    INT4 = "int4"  # half a byte per number, and a scale and an offset per row in fp16

    def row_bytes(self, width: int) -> int:
        """The bytes that a row of `width` numbers takes."""
        match self:
            case TableDtype.FP32:
                return 4 * width
            case TableDtype.FP16:
                return 2 * width
            case TableDtype.INT8:
                return width + 8
            case TableDtype.INT4:
                return -(-width // 4) * 2 + 4  # numbers come in fours
