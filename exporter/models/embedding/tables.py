"""Embedding tables: rows by their ids and pooled bags of rows, in fp32 whatever dtype the table keeps.

R rows, V ids, B bags, D width of a row, C bytes of a row's numbers in int4.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import ClassVar

import fbgemm_gpu  # noqa: F401  registers torch.ops.fbgemm
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from exporter.checkpoint.tensors import TensorMeta
from exporter.config.schema import Pooling
from exporter.dtypes import TableDtype

FLOATS = {
    TableDtype.FP32: torch.float32,
    TableDtype.FP16: torch.float16,
}  # dtypes that training keeps rows in


class EmbeddingTable(nn.Module, ABC):
    """An embedding table; the tensors in its state dict have one entry per row of the table."""

    @abstractmethod
    def rows(self, ids_V: Tensor) -> Tensor:
        """Return the rows of these ids: (V, D)."""

    def bags(
        self, ids_V: Tensor, offsets: Tensor, pooling: Pooling, weights_V: Tensor | None = None
    ) -> Tensor:
        """Return the rows of each bag of ids as one vector: (B, D); see `pool_rows`."""
        each_V = torch.arange(ids_V.shape[0], device=ids_V.device)
        return pool_rows(each_V, self.rows(ids_V), offsets, pooling, weights_V)


class FloatTable(EmbeddingTable):
    """Table in fp32 or fp16, under the checkpoint's name.

    Rows of fp16 become fp32 before they are summed, as in the lookups of a trained, sharded model.
    """

    def __init__(self, weight_RD: Tensor) -> None:
        super().__init__()
        self.weight = nn.Parameter(weight_RD)

    @property
    def dtype(self) -> TableDtype:
        return dtype_of_floats(self.weight.dtype)

    def rows(self, ids_V: Tensor) -> Tensor:
        rows_VD = F.embedding(ids_V, self.weight)
        return rows_VD if self.dtype is TableDtype.FP32 else rows_VD.float()

    def bags(
        self, ids_V: Tensor, offsets: Tensor, pooling: Pooling, weights_V: Tensor | None = None
    ) -> Tensor:
        if self.dtype is TableDtype.FP32:
            return pool_rows(ids_V, self.weight, offsets, pooling, weights_V)
        return super().bags(ids_V, offsets, pooling, weights_V)


class LowTable(EmbeddingTable):
    """Table in fewer bytes than as trained; only the rows that are looked up become fp32, never the table."""

    dtype: ClassVar[TableDtype]

    def __init__(self, packed: Mapping[str, Tensor], width: int) -> None:
        """Take the buffers that `pack` returned for rows of `width` numbers."""
        super().__init__()
        self.width = width
        for name, tensor in packed.items():
            self.register_buffer(name, tensor)

    @classmethod
    def pack(cls, rows_RD: Tensor) -> dict[str, Tensor]:
        """Return the class's buffers, by name, for fp32 rows; each row is packed by itself."""
        return cls.split(cls.fuse(rows_RD), rows_RD.shape[1])

    @staticmethod
    @abstractmethod
    def fuse(rows_RD: Tensor) -> Tensor:
        """Return fp32 rows as one tensor in fbgemm's fused layout, a row with its scale and offset."""

    @staticmethod
    @abstractmethod
    def split(fused: Tensor, width: int) -> dict[str, Tensor]:
        """Return the class's buffers, by name, for rows in the fused layout."""

    @classmethod
    def restore(cls, fused: Tensor, width: int) -> Tensor:
        """Return all fused rows in fp32."""
        return cls(cls.split(fused, width), width).rows(torch.arange(fused.shape[0], device=fused.device))


class Fp16Table(LowTable):
    """Rows cast to fp16."""

    dtype = TableDtype.FP16
    weight: Tensor

    @staticmethod
    def fuse(rows_RD: Tensor) -> Tensor:
        return rows_RD.half()

    @staticmethod
    def split(fused: Tensor, width: int) -> dict[str, Tensor]:
        return {"weight": fused}

    def rows(self, ids_V: Tensor) -> Tensor:
        return F.embedding(ids_V, self.weight).float()


class Int8Table(LowTable):
    """Rows quantised by fbgemm to one byte per number, with scale and offset of each row in fp32.

    Looked-up rows equal fbgemm's own dequantisation up to one rounding, as it fuses product and sum.
    """

    dtype = TableDtype.INT8
    codes: Tensor  # (R, D)
    scale_offset: Tensor  # (R, 2)

    @staticmethod
    def fuse(rows_RD: Tensor) -> Tensor:
        fused: Tensor = torch.ops.fbgemm.FloatOrHalfToFused8BitRowwiseQuantized(rows_RD)
        return fused

    @staticmethod
    def split(fused: Tensor, width: int) -> dict[str, Tensor]:
        return {
            "codes": fused[:, :width].contiguous(),
            "scale_offset": _own(fused[:, width:]).view(torch.float32),
        }

    def rows(self, ids_V: Tensor) -> Tensor:
        scale_V1, offset_V1 = F.embedding(ids_V, self.scale_offset).split(1, dim=1)
        return F.embedding(ids_V, self.codes).float() * scale_V1 + offset_V1


class Int4Table(LowTable):
    """Rows quantised by fbgemm to half a byte per number, with scale and offset of each row in fp16.

    Looked-up rows equal fbgemm's own dequantisation bit for bit. fbgemm takes numbers in fours: a row is
    filled up with copies of its last number, which change neither its scale nor its offset.
    """

    dtype = TableDtype.INT4
    codes: Tensor  # (R, C), the first number of two in the low bits
    scale_offset: Tensor  # (R, 2)

    @staticmethod
    def fuse(rows_RD: Tensor) -> Tensor:
        missing = -rows_RD.shape[1] % 4
        filled = torch.cat([rows_RD, rows_RD[:, -1:].expand(-1, missing)], dim=1)
        fused: Tensor = torch.ops.fbgemm.FloatOrHalfToFusedNBitRowwiseQuantizedSBHalf(filled, 4)
        return fused

    @staticmethod
    def split(fused: Tensor, width: int) -> dict[str, Tensor]:
        size = fused.shape[1] - 4
        return {
            "codes": fused[:, :size].contiguous(),
            "scale_offset": _own(fused[:, size:]).view(torch.float16),
        }

    def rows(self, ids_V: Tensor) -> Tensor:
        scale_V1, offset_V1 = F.embedding(ids_V, self.scale_offset).float().split(1, dim=1)
        codes_VC = F.embedding(ids_V, self.codes)
        numbers = torch.stack([codes_VC & 15, codes_VC >> 4], dim=2).flatten(1)[:, : self.width]
        return numbers.float() * scale_V1 + offset_V1


LOW_TABLES: Mapping[TableDtype, type[LowTable]] = {
    table.dtype: table for table in (Fp16Table, Int8Table, Int4Table)
}


def _own(part: Tensor) -> Tensor:
    """Copy a part, even of a single row, so that it begins at an address that any dtype can be viewed at."""
    return part.clone(memory_format=torch.contiguous_format)


def dtype_of_floats(dtype: torch.dtype) -> TableDtype:
    """Return the dtype of a table whose rows are floating-point numbers of this dtype."""
    [found] = (each for each, floats in FLOATS.items() if floats is dtype)
    return found


def loses_precision(trained: TableDtype, kept_in: TableDtype) -> bool:
    """Return whether rows change where they are kept in another dtype than they were trained in."""
    return kept_in not in (trained, TableDtype.FP32)


def meta_of_fused_rows(meta: TensorMeta, dtype: TableDtype) -> TensorMeta:
    """Return shape and dtype of rows of this meta once they are fused in `dtype`."""
    rows, width = meta.shape
    match dtype:
        case TableDtype.FP32 | TableDtype.FP16:
            return TensorMeta(shape=meta.shape, dtype=FLOATS[dtype])
        case TableDtype.INT8 | TableDtype.INT4:
            return TensorMeta(shape=(rows, dtype.row_bytes(width)), dtype=torch.uint8)


def pool_rows(
    ids_V: Tensor, rows_RD: Tensor, offsets: Tensor, pooling: Pooling, weights_V: Tensor | None
) -> Tensor:
    """Return the sum or the mean of the rows of each bag of ids, zeros for an empty bag: (B, D).

    Weights multiply the rows; a mean still divides by the number of ids, as TorchRec does.
    """
    if weights_V is None:
        return F.embedding_bag(ids_V, rows_RD, offsets, mode=pooling.value, include_last_offset=True)
    summed: Tensor = F.embedding_bag(
        ids_V, rows_RD, offsets, mode="sum", per_sample_weights=weights_V, include_last_offset=True
    )
    if pooling is Pooling.MEAN:
        summed = summed / offsets.diff().clamp(min=1).unsqueeze(1)
    return summed
