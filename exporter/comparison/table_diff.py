"""Two tables row by row, read piece by piece: what changed, and by how much.

P rows of a piece, C changed rows among them, D width of a row.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from exporter.comparison.row_values import PublishedTable
from exporter.redaction import shorten
from exporter.reports.comparison import LONGEST_TEXT, MOST_ROWS, Histogram, RowChange, TableDiff

# Of the histograms of norms and of relative changes, which span many magnitudes; zeros have the first bin.
EDGES = np.concatenate([[0.0], np.logspace(-6, 4, 61)])


def compare_tables(old: PublishedTable | None, new: PublishedTable | None) -> TableDiff:
    """Compare the rows that both tables have; a table may be missing on one side."""
    either = new or old
    assert either is not None
    diff = TableDiff(
        name=shorten(either.name, LONGEST_TEXT),
        path=shorten(either.path, LONGEST_TEXT),
        old_rows=old.rows if old else None,
        new_rows=new.rows if new else None,
        old_width=old.width if old else None,
        new_width=new.width if new else None,
        old_dtype=old.dtype if old else None,
        new_dtype=new.dtype if new else None,
        rows_added=max(0, (new.rows if new else 0) - (old.rows if old else 0)),
        rows_removed=max(0, (old.rows if old else 0) - (new.rows if new else 0)),
    )
    if old is None or new is None:
        return diff
    if old.width != new.width:
        return diff.model_copy(update={"note": "rows of different widths are not compared"})
    sums = _Sums()
    for pair in _pairs(old, new):
        sums.add(pair.names, old.read(pair.old), new.read(pair.new))
    found = sums.summarise()
    if old.ids is not None and new.ids is not None:
        found["rows_added"], found["rows_removed"] = len(new.ids) - sums.rows, len(old.ids) - sums.rows
    return diff.model_copy(update={**found, "by_id": old.ids is not None and new.ids is not None})


@dataclass(frozen=True, eq=False)
class _Pair:
    """Rows of both tables that are compared: their names, and their numbers on either side."""

    names: Tensor  # (P,), ids where the tables have maps of ids, else numbers
    old: Tensor
    new: Tensor


def _pairs(old: PublishedTable, new: PublishedTable) -> Iterator[_Pair]:
    """Yield the rows to compare in pieces: rows of the same id, or of the same number."""
    step = old.rows_per_piece
    if old.ids is None or new.ids is None:
        rows = min(old.rows, new.rows)
        for first in range(0, rows, step):
            numbers_P = torch.arange(first, min(rows, first + step))
            yield _Pair(numbers_P, numbers_P, numbers_P)
        return
    others = len(new.ids)
    for first in range(0, len(old.ids), step):
        part = slice(first, min(len(old.ids), first + step))
        ids_P = old.ids.ids[part]
        places_P = torch.searchsorted(new.ids.ids[:others], ids_P).clamp(max=max(0, others - 1))
        found_P = new.ids.ids[places_P] == ids_P if others else torch.zeros(len(ids_P), dtype=torch.bool)
        yield _Pair(ids_P[found_P], old.ids.rows[part][found_P], new.ids.rows[places_P[found_P]])


def _norms(rows: NDArray[np.float32]) -> NDArray[np.float64]:
    """Return the norm of each row, which is finite if all of its numbers are: fp64 holds their squares."""
    wide = rows.astype(np.float64)
    with np.errstate(invalid="ignore"):
        norms: NDArray[np.float64] = np.sqrt(np.einsum("pd,pd->p", wide, wide))
    return norms


def count_by_edges(values: NDArray[np.float64], edges: NDArray[np.float64]) -> NDArray[np.int64]:
    """Count values between neighbouring edges; values beyond the last edge belong to the last bin."""
    bins = np.searchsorted(edges, values, side="right") - 1
    return np.bincount(bins.clip(0, len(edges) - 2), minlength=len(edges) - 1)


def trim_histogram(
    edges: NDArray[np.float64], old: NDArray[np.int64], new: NDArray[np.int64]
) -> Histogram | None:
    """Return a histogram without the empty bins at both ends; None if all bins are empty."""
    used = np.flatnonzero(old + new)
    if not len(used):
        return None
    first, end = int(used[0]), int(used[-1]) + 1
    return Histogram(
        edges=tuple(edges[first : end + 1].tolist()),
        old=tuple(old[first:end].tolist()),
        new=tuple(new[first:end].tolist()),
    )


def _no_counts() -> NDArray[np.int64]:
    return np.zeros(len(EDGES) - 1, dtype=np.int64)


@dataclass
class _Sums:
    """Sums and extremes over the pieces of two tables."""

    rows: int = 0
    finite: int = 0
    changed: int = 0
    norm_change: float = 0.0
    largest_norm_change: float = 0.0
    cosine: float = 0.0
    least_cosine: float = math.inf
    old_norms: NDArray[np.int64] = field(default_factory=_no_counts)
    new_norms: NDArray[np.int64] = field(default_factory=_no_counts)
    relative: NDArray[np.int64] = field(default_factory=_no_counts)
    most_changed: list[RowChange] = field(default_factory=list)

    def add(self, names_P: Tensor, old_PD: Tensor, new_PD: Tensor) -> None:
        """Add a piece of rows, which are called `names_P`; a row has changed if a bit of it has."""
        old, new = old_PD.numpy(), new_PD.numpy()
        changed = (old.view(np.int32) != new.view(np.int32)).any(axis=1)
        norms = _norms(old)
        still = norms[~changed]
        still = still[np.isfinite(still)]
        counts = count_by_edges(still, EDGES)
        self.rows += len(old)
        self.finite += len(still)
        self.changed += int(changed.sum())
        self.old_norms += counts
        self.new_norms += counts
        self.cosine += len(still)  # equal rows have one direction
        if len(still):
            self.least_cosine = min(self.least_cosine, 1.0)
        moved = changed & np.isfinite(norms)
        moved[moved] = np.isfinite(_norms(new[moved]))
        if moved.any():
            self.finite += int(moved.sum())
            pair = (torch.from_numpy(side[moved]).double() for side in (old, new))
            self._add_changed(names_P[torch.from_numpy(moved)], *pair)

    def _add_changed(self, names_C: Tensor, old_CD: Tensor, new_CD: Tensor) -> None:
        old_C, new_C = old_CD.norm(dim=1), new_CD.norm(dim=1)
        cosines_C = cosines(old_CD, new_CD)
        distances_C = (new_CD - old_CD).norm(dim=1)
        self.cosine += float(cosines_C.sum())
        self.least_cosine = min(self.least_cosine, float(cosines_C.min()))
        changes_C = (new_C - old_C).abs()
        self.norm_change += float(changes_C.sum())
        self.largest_norm_change = max(self.largest_norm_change, float(changes_C.max()))
        self.old_norms += count_by_edges(old_C.numpy(), EDGES)
        self.new_norms += count_by_edges(new_C.numpy(), EDGES)
        # A row that was zero has changed by more than any share of its norm.
        relative_C = torch.where(old_C > 0, distances_C / old_C, torch.inf)
        self.relative += count_by_edges(relative_C.numpy(), EDGES)
        found = [
            RowChange(
                row=int(names_C[at]),
                distance=float(distances_C[at]),
                old_norm=float(old_C[at]),
                new_norm=float(new_C[at]),
                cosine=float(cosines_C[at]),
            )
            for at in distances_C.topk(min(MOST_ROWS, len(distances_C))).indices.tolist()
        ]
        most = sorted((*self.most_changed, *found), key=lambda each: (-each.distance, each.row))
        self.most_changed = most[:MOST_ROWS]

    def summarise(self) -> dict[str, object]:
        """Return the fields of a `TableDiff` that come from rows."""
        unchanged = np.zeros_like(self.relative)
        finite = self.finite
        return {
            "rows_compared": self.rows,
            "rows_changed": self.changed,
            "rows_not_finite": self.rows - finite,
            "mean_norm_change": self.norm_change / finite if finite else None,
            "largest_norm_change": self.largest_norm_change if finite else None,
            "mean_cosine": self.cosine / finite if finite else None,
            "least_cosine": self.least_cosine if finite else None,
            "norms": trim_histogram(EDGES, self.old_norms, self.new_norms),
            "relative_changes": trim_histogram(EDGES, unchanged, self.relative),
            "most_changed": tuple(self.most_changed),
        }


def cosines(old_CD: Tensor, new_CD: Tensor) -> Tensor:
    """Return the cosine of each pair of rows: 1 where both are zero, 0 where one is."""
    old_C, new_C = old_CD.norm(dim=1), new_CD.norm(dim=1)
    product_C = (old_CD * new_CD).sum(dim=1)
    cosine_C = (product_C / (old_C * new_C)).clamp(-1, 1)
    alike_C = ((old_C == 0) & (new_C == 0)).to(cosine_C.dtype)
    return torch.where((old_C > 0) & (new_C > 0), cosine_C, alike_C)
