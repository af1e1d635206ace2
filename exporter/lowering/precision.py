"""Compute a tower in lower precision: by autocast, with outputs in fp32; and by TF32 on CUDA."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor

from exporter.dtypes import Precision
from exporter.towers.tower import ServedModule

_DTYPES = {Precision.BF16: torch.bfloat16, Precision.FP16: torch.float16}


class InPrecision(ServedModule):
    """A tower that is computed under autocast, which torch.export captures.

    `lookup`, which becomes the sparse package of two, is not changed, and outputs keep their dtypes, so that
    servers need not know. The device is that of the tensors that it is called with.
    """

    def __init__(self, served: ServedModule, precision: Precision) -> None:
        super().__init__()
        self.served = served
        self._dtype = _DTYPES[precision]

    def forward(self, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        with self._autocast(inputs):
            outputs = self.served(inputs)
        return self._as_fp32(outputs)

    def lookup(self, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return self.served.lookup(inputs)

    def compute(self, embedded: Mapping[str, Tensor]) -> dict[str, Tensor]:
        with self._autocast(embedded):
            outputs = self.served.compute(embedded)
        return self._as_fp32(outputs)

    def limit_rows(self, limits: Mapping[str, int]) -> None:
        self.served.limit_rows(limits)

    def demands(self, inputs: Mapping[str, Tensor]) -> tuple[str, ...]:
        return self.served.demands(inputs)

    def remarks(self) -> tuple[str, ...]:
        return self.served.remarks()

    def _autocast(self, tensors: Mapping[str, Tensor]) -> torch.autocast:
        return torch.autocast(next(iter(tensors.values())).device.type, dtype=self._dtype)

    def _as_fp32(self, outputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return {
            name: value.float() if value.dtype is self._dtype else value for name, value in outputs.items()
        }


def allow_tf32(*, allowed: bool) -> None:
    """Let products of fp32 matrices on CUDA round their factors to TF32, in this process from now on."""
    torch.backends.cuda.matmul.allow_tf32 = allowed


@contextmanager
def without_tf32() -> Iterator[None]:
    """Compute products of matrices in full fp32 inside the context, even if TF32 is allowed."""
    before = torch.backends.cuda.matmul.allow_tf32
    allow_tf32(allowed=False)
    try:
        yield
    finally:
        allow_tf32(allowed=before)
