"""Reference results of the kernels, computed row by row in float64 with plain torch.

B rows, N elements of all rows together, D width, E width of what was attended to.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from exporter.models.hstu.kernels.output import Norm
from exporter.models.hstu.kernels.position import Times


def error_of(out: Tensor, expected: Tensor) -> float:
    """Return the error of `out` relative to `expected`; NaN if part of `out` was not written."""
    if out.shape != expected.shape:
        return float("inf")
    difference = (out.double() - expected.double()).norm()
    return float(difference / expected.double().norm().clamp(min=1e-30)) if difference != 0 else 0.0


def add_positions(
    values_PD: Tensor,
    lengths: list[int],
    candidates: list[int] | None,
    position_weight: Tensor,
    times: Times | None,
    *,
    scale: float,
    prefix: int,
) -> Tensor:
    """Return values times `scale` plus each element's position and age embeddings, in float64."""
    highest, rows, start = position_weight.shape[0] - 1, [], 0
    for row, length in enumerate(lengths):
        history = length - (candidates[row] if candidates else 0)
        places = torch.arange(length, device=values_PD.device)
        from_end = (history - places).clamp(min=0) + prefix
        if times is None:
            positions = places.clamp(max=history).clamp(max=highest)
        else:
            positions = torch.where(places < prefix, places, from_end.clamp(max=highest))
        added = position_weight.double()[positions]
        if times is not None and length:
            stamps = times.timestamps[start : start + length]
            anchor = stamps[-1] if times.query_time is None else times.query_time[row]
            added = added + times.weight.double()[_bucket(anchor - stamps, times)]
        rows.append(values_PD[start : start + length].double() * scale + added)
        start += length
    return torch.cat(rows)


def _bucket(ages: Tensor, times: Times) -> Tensor:
    """Return the buckets of ages in fp32 as PyTorch computes them on a GPU.

    A GPU multiplies by the reciprocal of the divisor and rounds roots correctly, which a CPU may not do.
    """
    count = times.weight.shape[0] - 1
    if ages.is_cuda:
        steps = ages.clamp(min=1e-6) / times.increments
        spread = torch.log(steps) if times.log else torch.sqrt(steps)
        return ((spread / count).clamp(min=0, max=1) * count).int()
    steps = ages.clamp(min=1e-6) * (1 / torch.tensor(times.increments))
    spread = torch.log(steps.double()).float() if times.log else torch.sqrt(steps.double()).float()
    return ((spread * (1 / torch.tensor(float(count)))).clamp(min=0, max=1) * count).int()


def gate(uvqk_NW: Tensor, attended_NE: Tensor, norm: Norm, *, u_column: int) -> Tensor:
    """Return [u, a, u * norm(a)] in float64."""
    a = attended_NE.double()
    u = F.silu(uvqk_NW[:, u_column : u_column + a.shape[1]].double())
    weight, bias = norm.weight.double(), norm.bias.double()
    parts = a.unflatten(1, (norm.heads or 1, -1))
    centred = parts - parts.mean(dim=2, keepdim=True)
    normed = centred / (centred.square().mean(dim=2, keepdim=True) + norm.eps).sqrt()
    if norm.heads:
        weight, bias = (each.unsqueeze(1).expand(parts.shape[1:]).flatten() for each in (weight, bias))
    return torch.cat([u, a, u * (normed.flatten(1) * weight + bias)], dim=1)


def project(
    x_ND: Tensor, uvqk_NW: Tensor, attended_NE: Tensor, weight: Tensor, norm: Norm, *, u_column: int
) -> Tensor:
    """Return x + [u, a, u * norm(a)] @ W in float64."""
    return x_ND.double() + gate(uvqk_NW, attended_NE, norm, u_column=u_column) @ weight.double()
