"""Add a bias to a product in the loop that reads the product, in code that inductor generates for a CPU.

torch's `addmm` copies the bias to every row of its output first and adds the product to that: one more pass
over the output, where the loop behind the product reads it anyway.
"""

from functools import cache
from typing import Any

import torch
from torch._inductor import lowering

_ADDMM = torch.ops.aten.addmm.default


@cache
def split_biases() -> None:
    """Make inductor compute `addmm` of numbers of 32 bits on a CPU as a product and a sum, from now on."""
    lowerings: Any = lowering.lowerings
    whole = lowerings[_ADDMM]

    def by_parts(bias: Any, a: Any, b: Any, *, beta: float = 1, alpha: float = 1) -> Any:
        on_cpu = a.get_device_or_error().type == "cpu"
        dtypes = {bias.get_dtype(), a.get_dtype(), b.get_dtype()}
        # In fewer bits, the product would be rounded once more before the sum.
        if not on_cpu or dtypes != {torch.float32} or beta != 1 or alpha != 1:
            return whole(bias, a, b, beta=beta, alpha=alpha)
        product = lowerings[torch.ops.aten.mm.default](a, b)
        return lowerings[torch.ops.aten.add.Tensor](product, bias)

    lowerings[_ADDMM] = by_parts
