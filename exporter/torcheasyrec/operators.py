"""The steps of a sparse half: functions that TorchScript compiles, so they keep to its part of Python.

They use nothing but torch's own operators, and a process that loads the half needs no other library.

B rows, N elements of all rows together, V values, R rows of a table, L elements of the longest row, D width.
"""

import torch
import torch.nn.functional as F
from torch import Tensor


def take_inputs(
    data: dict[str, Tensor],
    device: torch.device,
    names: list[str],
    dtypes: list[torch.dtype],
    axes: list[list[int]],
    dims: list[str],
    bounds: list[tuple[int, int]],
) -> list[Tensor]:
    """Return the named inputs on the device; raise RuntimeError if dtypes or sizes are not as planned.

    An axis is a fixed size, or -1 less the number of the dim that it names; `bounds` are those of the dims.
    """
    tensors: list[Tensor] = []
    sizes = [-1] * len(dims)
    for place, name in enumerate(names):
        if name not in data:
            raise RuntimeError("there is no input " + name)
        tensor = data[name]
        if tensor.dtype != dtypes[place]:
            raise RuntimeError(name + " has another dtype than it is planned with")
        if tensor.dim() != len(axes[place]):
            raise RuntimeError(name + " has " + str(tensor.dim()) + " axes")
        for axis, planned in enumerate(axes[place]):
            _require_size(name, tensor.size(axis), planned, sizes, dims, bounds)
        tensors.append(tensor.to(device))
    return tensors


def _require_size(
    name: str, size: int, planned: int, sizes: list[int], dims: list[str], bounds: list[tuple[int, int]]
) -> None:
    """Raise RuntimeError if a size is not as planned; `sizes` are those of the dims, -1 until met."""
    if planned >= 0:
        if size != planned:
            raise RuntimeError(name + " has rows of " + str(size) + " numbers, not " + str(planned))
        return
    dim = -1 - planned
    if sizes[dim] < 0:
        sizes[dim] = size
    low, high = bounds[dim]
    if size < low or size > high:
        raise RuntimeError(name + " is " + str(size) + " long, outside the bounds of " + dims[dim])
    if size != sizes[dim]:
        raise RuntimeError(name + " is " + str(size) + " long, and " + dims[dim] + " is " + str(sizes[dim]))


def are_rows(ids_V: Tensor, rows: int) -> Tensor:
    """Return whether ids are row numbers of a table."""
    return ((ids_V >= 0) & (ids_V < rows)).all()


def add_up(lengths: Tensor, values: Tensor) -> Tensor:
    """Return whether lengths divide the values; a sum of lengths beyond them may overflow to the same."""
    total = values.size(0)
    return ((lengths >= 0) & (lengths <= total)).all() & (lengths.sum() == total)


def are_equal(one_B: Tensor, other_B: Tensor) -> Tensor:
    """Return whether the lengths of two features of one sequence are equal."""
    return (one_B == other_B).all()


def are_at_most(lengths: Tensor, most: int) -> Tensor:
    """Return whether no entry is larger."""
    return (lengths <= most).all()


def require_all(tensors: list[Tensor], conditions: list[Tensor], messages: list[str]) -> list[Tensor]:
    """Return the tensors if all conditions hold; else raise RuntimeError with the first one's message."""
    if len(conditions) > 0:
        unmet = torch.stack(conditions).logical_not()
        if bool(unmet.any()):
            raise RuntimeError(messages[int(unmet.long().argmax())])
    return tensors


def no_numbers(like_B: Tensor, width: int) -> Tensor:
    """Return zeros in the place of numbers that nothing reads: (B, width)."""
    return torch.zeros([like_B.size(0), width], dtype=torch.float32, device=like_B.device)


def offsets_of(lengths: Tensor) -> Tensor:
    """Return where each row begins, and the total: the sums of the first 0, 1, ..., B lengths."""
    return torch.cat([lengths.new_zeros(1, dtype=torch.int64), lengths.cumsum(0, dtype=torch.int64)])


def longest_of(lengths_B: Tensor) -> int:
    """Return the length of the longest row, and at least 1, which is the least that a dense half takes."""
    return max(int(lengths_B.max()), 1)


def select(offsets: Tensor, inner_offsets: Tensor) -> Tensor:
    """Return where each row's values begin, from where its elements do and where the elements' values do."""
    return inner_offsets[offsets]


def map_ids(ids_R: Tensor, rows_R: Tensor, ids_V: Tensor) -> Tensor:
    """Return the row of each id by a map that is sorted by id; other ids have the last row."""
    places_V = torch.searchsorted(ids_R[:-1], ids_V)
    return torch.where(ids_R[places_V] == ids_V, rows_R[places_V], rows_R.size(0) - 1)


def float_rows(weight_RD: Tensor, ids_V: Tensor) -> Tensor:
    """Return rows of a table of fp32 or fp16 in fp32: (V, D)."""
    return torch.embedding(weight_RD, ids_V).float()


def int8_rows(codes_RD: Tensor, scale_offset_R2: Tensor, ids_V: Tensor) -> Tensor:
    """Return rows of a table of int8 in fp32: (V, D)."""
    scale_offset_V2 = torch.embedding(scale_offset_R2, ids_V)
    return torch.embedding(codes_RD, ids_V).float() * scale_offset_V2[:, :1] + scale_offset_V2[:, 1:]


def int4_rows(codes_RC: Tensor, scale_offset_R2: Tensor, ids_V: Tensor, width: int) -> Tensor:
    """Return rows of a table of int4 in fp32: (V, D)."""
    scale_offset_V2 = torch.embedding(scale_offset_R2, ids_V).float()
    codes_VC = torch.embedding(codes_RC, ids_V)
    numbers_VD = torch.stack([codes_VC & 15, codes_VC >> 4], dim=2).flatten(1)[:, :width]
    return numbers_VD.float() * scale_offset_V2[:, :1] + scale_offset_V2[:, 1:]


def pool_table(
    weight_RD: Tensor, ids_V: Tensor, offsets: Tensor, is_mean: bool, weights_V: Tensor | None
) -> Tensor:
    """Return the sum or the mean of each bag's rows of a table of fp32, zeros for an empty bag: (B, D).

    Weights multiply the rows; a mean still divides by the number of ids.
    """
    if weights_V is None:
        mode = "mean" if is_mean else "sum"
        return F.embedding_bag(ids_V, weight_RD, offsets, mode=mode, include_last_offset=True)
    summed_BD = F.embedding_bag(
        ids_V, weight_RD, offsets, mode="sum", per_sample_weights=weights_V, include_last_offset=True
    )
    if is_mean:
        summed_BD = summed_BD / offsets.diff().clamp(min=1).unsqueeze(1)
    return summed_BD


def pool_rows(rows_VD: Tensor, offsets: Tensor, is_mean: bool, weights_V: Tensor | None) -> Tensor:
    """Return what `pool_table` does, for rows that were looked up before."""
    each_V = torch.arange(rows_VD.size(0), device=rows_VD.device)
    return pool_table(rows_VD, each_V, offsets, is_mean, weights_V)


def pad(values_ND: Tensor, offsets: Tensor, longest: int) -> Tensor:
    """Fill every row up with zeros, or cut it: (N, D) to (B, L, D)."""
    starts_B1, ends_B1 = offsets[:-1].unsqueeze(1), offsets[1:].unsqueeze(1)
    places_BL = starts_B1 + torch.arange(longest, device=offsets.device).unsqueeze(0)
    if values_ND.size(0) == 0:
        return values_ND.new_zeros([places_BL.size(0), longest, values_ND.size(1)])
    padded_BLD = values_ND[places_BL.clamp(max=values_ND.size(0) - 1)]
    return torch.where((places_BL < ends_B1).unsqueeze(2), padded_BLD, torch.zeros_like(padded_BLD))


def first_of_rows(values_ND: Tensor, offsets: Tensor) -> Tensor:
    """Return the first element of each row, zeros for an empty row: (N, D) to (B, D)."""
    return pad(values_ND, offsets, 1).squeeze(1)
