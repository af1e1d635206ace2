"""HSTU attention over jagged rows on a CPU as one operator: torch in eager, a kernel of ours in a package.

B rows, N elements of all rows together, M of them that ask, L elements of one row, H heads, A and V widths of
a head's queries and values, Q = H * A, E = H * V.
"""

from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.library import custom_op

from exporter.models.hstu.kernels.attention import AttentionForm, visible

_NAME = "slipway::jagged_attention"
CPU_KERNELS = frozenset({_NAME})  # operators whose kernels `exporter.aoti.kernels` compiles into a package


@custom_op(
    _NAME,
    mutates_args=(),
    device_types="cpu",
    tags=(torch.Tag.flexible_layout,),  # a package's kernel reads any rows whose numbers follow each other
)
def jagged_attention(  # noqa: PLR0913  an operator takes no structures
    q_MQ: Tensor,
    k_NQ: Tensor,
    v_NE: Tensor,
    offsets_B1: Tensor,
    asking_B1: Tensor,
    candidates_B: Tensor | None,
    heads: int,
    alpha: float,
    divisor: float,
    prefix: int = 0,
    window: int = 0,
    sla_k1: int = 0,
    sla_k2: int = 0,
) -> Tensor:
    """Return the weighted sum of the values that each asking element sees, (M, E); see `AttentionForm`.

    Row b is the elements from offsets_B1[b] to offsets_B1[b + 1]. Its last ones ask, with the queries from
    asking_B1[b] to asking_B1[b + 1]; a row that has fewer elements than queries gives zeros to the first of
    them. Of its elements the last candidates_B[b] are candidates, which see the history and no other one.
    """
    form = AttentionForm(
        v_column=0, q_column=0, k_column=0,
        heads=heads, attention_dim=q_MQ.shape[1] // heads, hidden_dim=v_NE.shape[1] // heads,
        alpha=alpha, divisor=divisor,
        prefix=prefix, window=window, sla_k1=sla_k1, sla_k2=sla_k2,
    )  # fmt: skip
    out_ME = v_NE.new_zeros((q_MQ.shape[0], v_NE.shape[1]))
    rows, asking = pairwise(offsets_B1.tolist()), pairwise(asking_B1.tolist())
    counts = [None] * (offsets_B1.shape[0] - 1) if candidates_B is None else candidates_B.tolist()
    for (start, end), (first, behind), own in zip(rows, asking, counts, strict=True):
        count = min(behind - first, end - start)
        q_HMA, k_HLA, v_HLV = (
            x.unflatten(1, (heads, -1)).transpose(0, 1)
            for x in (q_MQ[behind - count : behind], k_NQ[start:end], v_NE[start:end])
        )
        seen_ML = visible(form, end - start, own)[end - start - count :]
        weights_HML = F.silu(q_HMA @ k_HLA.transpose(1, 2) * alpha) / divisor * seen_ML
        out_ME[behind - count : behind] = (weights_HML @ v_HLV).transpose(0, 1).flatten(1)
    return out_ME


@jagged_attention.register_fake
def _shape(q_MQ: Tensor, _k_NQ: Tensor, v_NE: Tensor, *_: object) -> Tensor:
    return v_NE.new_empty((q_MQ.shape[0], v_NE.shape[1]))
