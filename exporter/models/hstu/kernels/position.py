"""Position and time encoding as one operator: a Triton kernel on a GPU, plain torch on a CPU.

B rows, P elements of all rows together, D width. As
`exporter.models.hstu.positional_encoder` computes it.
"""

from ctypes import c_float
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.library import triton_op, wrap_triton

from exporter.models.hstu.kernels.launch import Launchable
from exporter.models.hstu.kernels.position_kernel import encode_positions_kernel

_BLOCK_P, _BLOCK_D = 16, 256


@dataclass(frozen=True, kw_only=True)
class Times:
    """Times of the elements, and the buckets of their ages."""

    timestamps: Tensor  # (P,)
    query_time: Tensor | None  # (B,): time that ages count from; None: that of a row's last element
    weight: Tensor  # (buckets + 1, D)
    increments: float  # seconds
    log: bool  # True: buckets of logarithms; False: of square roots


@triton_op("slipway::encode_positions", mutates_args={})
def encode_positions(  # noqa: PLR0913  an operator takes no structures
    values_PD: Tensor,
    offsets_B1: Tensor,
    candidates_B: Tensor | None,
    position_weight: Tensor,
    scale: float,
    prefix: int,
    timestamps_P: Tensor | None = None,
    query_time_B: Tensor | None = None,
    time_weight: Tensor | None = None,
    increments: float = 1.0,
    log: bool = False,
) -> Tensor:
    """Return `values_PD` times `scale`, plus the weights' rows for each element's position and age, (P, D).

    `candidates_B`: how many of a row's last elements are candidates. With `time_weight` also `timestamps_P`
    is needed, and ages are those at `query_time_B`, or at a row's last element if there is none.
    """
    times = _times(timestamps_P, query_time_B, time_weight, increments, log)
    dtype = torch.promote_types(values_PD.dtype, position_weight.dtype)
    out = values_PD.new_empty(values_PD.shape, dtype=dtype)
    encode_into(
        out,
        values_PD.contiguous(),
        offsets_B1.contiguous(),
        None if candidates_B is None else candidates_B.contiguous(),
        position_weight.contiguous(),
        times,
        scale=scale,
        prefix=prefix,
        kernel=wrap_triton(encode_positions_kernel),
    )
    return out


def encode_into(  # noqa: PLR0913  what the kernel takes
    out_PD: Tensor,
    values_PD: Tensor,
    offsets_B1: Tensor,
    candidates_B: Tensor | None,
    position_weight: Tensor,
    times: Times | None,
    *,
    scale: float,
    prefix: int,
    kernel: Launchable,
) -> None:
    """Launch `encode_positions_kernel` over contiguous tensors."""
    elements, width = values_PD.shape
    nothing = offsets_B1  # a placeholder pointer, which is not read
    query_time = nothing if times is None else times.query_time
    buckets = 1 if times is None else times.weight.shape[0] - 1
    kernel[((elements + _BLOCK_P - 1) // _BLOCK_P,)](
        values_PD,
        offsets_B1,
        nothing if candidates_B is None else candidates_B,
        position_weight,
        nothing if times is None else times.timestamps,
        nothing if query_time is None else query_time,
        nothing if times is None else times.weight,
        out_PD,
        offsets_B1.shape[0] - 1,
        elements,
        scale,
        position_weight.shape[0] - 1,
        1.0 if times is None else _reciprocal(times.increments),
        _reciprocal(buckets),
        buckets,
        D=width,
        PREFIX=prefix,
        CANDIDATES=candidates_B is not None,
        TIME=times is not None,
        QUERY_TIME=times is not None and times.query_time is not None,
        LOG=times is not None and times.log,
        BLOCK_P=_BLOCK_P,
        BLOCK_D=min(_BLOCK_D, 1 << (width - 1).bit_length()),
        num_warps=4,
    )


@encode_positions.register_kernel("cpu")  # type: ignore[untyped-decorator]  # torch leaves it untyped
def _on_cpu(
    values_PD: Tensor,
    offsets_B1: Tensor,
    candidates_B: Tensor | None,
    position_weight: Tensor,
    scale: float,
    prefix: int,
    *of_times: Any,
) -> Tensor:
    times = _times(*of_times)
    elements_P = torch.arange(values_PD.shape[0])
    rows_P = (torch.searchsorted(offsets_B1, elements_P, right=True) - 1).clamp(max=offsets_B1.shape[0] - 2)
    places_P = elements_P - offsets_B1[rows_P]
    history_B = offsets_B1.diff() if candidates_B is None else offsets_B1.diff() - candidates_B
    history_P, highest = history_B[rows_P], position_weight.shape[0] - 1
    if times is None:
        positions_P = torch.minimum(places_P, history_P).clamp(max=highest)
        return values_PD * scale + position_weight[positions_P]
    from_end_P = ((history_P - places_P).clamp(min=0) + prefix).clamp(max=highest)
    positions_P = torch.where(places_P < prefix, places_P, from_end_P)
    if times.query_time is None:
        anchor_P = times.timestamps[offsets_B1[rows_P + 1] - 1]
    else:
        anchor_P = times.query_time[rows_P]
    buckets_P = _buckets(anchor_P - times.timestamps, times)
    return values_PD * scale + (times.weight[buckets_P] + position_weight[positions_P])


def _buckets(ages_P: Tensor, times: Times) -> Tensor:
    count = times.weight.shape[0] - 1
    steps = ages_P.clamp(min=1e-6) / times.increments
    spread = torch.log(steps) if times.log else torch.sqrt(steps)
    return ((spread / count).clamp(min=0, max=1) * count).int()


def _times(
    timestamps_P: Tensor | None = None,
    query_time_B: Tensor | None = None,
    time_weight: Tensor | None = None,
    increments: float = 1.0,
    log: bool = False,
) -> Times | None:
    if time_weight is None:
        return None
    assert timestamps_P is not None
    return Times(
        timestamps=timestamps_P.contiguous(),
        query_time=None if query_time_B is None else query_time_B.contiguous(),
        weight=time_weight.contiguous(),
        increments=increments,
        log=log,
    )


def _reciprocal(number: float) -> float:
    """Return the reciprocal as PyTorch computes it on a GPU: of the number rounded to fp32."""
    return 1.0 / c_float(number).value
