"""One output of two towers on the same rows: differences, correlations and distributions."""

import math
from collections.abc import Mapping

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from exporter.comparison.table_diff import cosines, trim_histogram
from exporter.redaction import shorten
from exporter.reports.comparison import LONGEST_TEXT, MOST_OUTPUTS, OutputDiff

Numbers = NDArray[np.float64]

_SHARES = (0.0, 0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99, 1.0)
_BINS = 30
COSINE_EDGES = np.linspace(-1, 1, 41)


def compare_outputs(old: Mapping[str, Tensor], new: Mapping[str, Tensor]) -> tuple[OutputDiff, ...]:
    """Compare the outputs of two towers by their names, in the order of the new tower."""
    names = list(dict.fromkeys((*new, *old)))[:MOST_OUTPUTS]
    return tuple(compare_output(name, old.get(name), new.get(name)) for name in names)


def compare_output(name: str, old: Tensor | None, new: Tensor | None) -> OutputDiff:
    """Compare one output, whose first axis is the rows; either side may lack it."""
    name = shorten(name, LONGEST_TEXT)
    if old is None or new is None:
        present = new if old is None else old
        assert present is not None
        side = "new" if old is None else "old"
        return OutputDiff(name=name, rows=len(present), note=f"only the {side} tower has it")
    if old.shape != new.shape:
        shapes = f"{list(old.shape)} and {list(new.shape)}"
        return OutputDiff(name=name, rows=len(new), note=f"the shapes {shapes} cannot be compared")
    width = math.prod(old.shape[1:])
    old_ND, new_ND = (side.double().reshape(len(side), width) for side in (old, new))
    finite_N = old_ND.isfinite().all(dim=1) & new_ND.isfinite().all(dim=1)
    equal_ND = (old_ND == new_ND) | (old_ND.isnan() & new_ND.isnan())
    diff = OutputDiff(
        name=name,
        rows=len(old_ND),
        width=old_ND.shape[1],
        rows_changed=int(equal_ND.all(dim=1).logical_not().sum()),
        rows_not_finite=int(finite_N.logical_not().sum()),
    )
    old_ND, new_ND = old_ND[finite_N], new_ND[finite_N]
    if not old_ND.numel():
        return diff
    distance = (new_ND - old_ND).abs()
    found: dict[str, object] = {
        "mean_difference": float(distance.mean()),
        "largest_difference": float(distance.max()),
    }
    found |= (
        _compare_numbers(old_ND[:, 0].numpy(), new_ND[:, 0].numpy())
        if diff.width == 1
        else _compare_vectors(old_ND, new_ND)
    )
    return diff.model_copy(update=found)


def _compare_numbers(old: Numbers, new: Numbers) -> dict[str, object]:
    low, high = min(old.min(), new.min()), max(old.max(), new.max())
    edges = np.linspace(low, high, _BINS + 1) if high > low else np.array([low, low + (abs(low) or 1.0)])
    counts = [np.histogram(side, bins=edges)[0] for side in (old, new)]
    return {
        "correlation": _correlation(old, new),
        "rank_correlation": _correlation(_ranks(old), _ranks(new)),
        "shares": _SHARES,
        "old_quantiles": tuple(np.quantile(old, _SHARES).tolist()),
        "new_quantiles": tuple(np.quantile(new, _SHARES).tolist()),
        "histogram": trim_histogram(edges, counts[0], counts[1]),
    }


def _compare_vectors(old_ND: Tensor, new_ND: Tensor) -> dict[str, object]:
    cosines_N = cosines(old_ND, new_ND)
    counts = np.histogram(cosines_N.numpy(), bins=COSINE_EDGES)[0]
    return {
        "mean_cosine": float(cosines_N.mean()),
        "least_cosine": float(cosines_N.min()),
        "histogram": trim_histogram(COSINE_EDGES, np.zeros_like(counts), counts),
    }


def _correlation(old: Numbers, new: Numbers) -> float | None:
    """Return Pearson's correlation; None where one side is constant, and nothing can go with it."""
    old, new = old - old.mean(), new - new.mean()
    scale = float(np.sqrt((old**2).sum() * (new**2).sum()))
    return float(np.clip((old * new).sum() / scale, -1, 1)) if scale > 0 else None


def _ranks(values: Numbers) -> Numbers:
    """Return the rank of each value; equal values share the mean of their ranks."""
    _, places, counts = np.unique(values, return_inverse=True, return_counts=True)
    ranks: Numbers = (np.cumsum(counts) - (counts - 1) / 2)[places]
    return ranks


def join_calls(calls: list[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """Return the outputs of several calls, one after the other."""
    return {name: torch.cat([call[name] for call in calls]) for name in (calls[0] if calls else {})}
