"""Verification cases: batches on which package and eager must agree, and batches that must be refused."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch

from exporter.data.batch import contradicting_batches
from exporter.data.lighter import lighter_batches
from exporter.data.rows import NamedBatch, Rows
from exporter.data.stretch import batches_beyond, lighter_full_batch
from exporter.data.sweep import agreeing_batches, lighter_random_batches
from exporter.dims.entries import Tried
from exporter.dims.plan import DimPlan
from exporter.dims.torch_dims import input_sizes
from exporter.manifest import CaseKind, CaseReport, TriedSizes
from exporter.towers.tower import Tower
from exporter.verify.numerics import find_not_finite

_USUAL = "batch_32"


@dataclass(frozen=True, kw_only=True)
class Cases:
    """All batches that one tower's packages are verified on; they are the tower's inputs."""

    must_agree: Sequence[NamedBatch]
    must_be_refused: Sequence[NamedBatch]  # their inputs contradict each other
    # A share of the largest ordinary batch's work -> batches in its place, each with no more work than that.
    make_lighter: Callable[[float], Iterable[NamedBatch]] = lambda share: ()

    @property
    def ordinary(self) -> list[NamedBatch]:
        """Batches of rows as they are, by size."""
        return [case for case in self.must_agree if is_ordinary(case)]

    @property
    def typical(self) -> list[NamedBatch]:
        """The smallest, a usual and the largest of the ordinary batches: for checks that take long."""
        ordinary = self.ordinary
        names = {each.name for each in (*ordinary[:1], *ordinary[-1:])} | {_USUAL}
        return [case for case in ordinary if case.name in names]

    @property
    def usual(self) -> NamedBatch | None:
        """A batch of rows as they are, large enough to tell how long the largest will take."""
        return next((case for case in self.ordinary[:-1] if case.name == _USUAL), None)

    def lighten(self, share: float) -> "Cases":
        """Return the cases with lighter ones in the place of the largest ordinary one, and of their names."""
        lighter, heavy = list(self.make_lighter(share)), self.ordinary[-1]
        if not lighter:
            return self
        replaced = {heavy.name, *(case.name for case in lighter)}
        at = self.must_agree.index(heavy)
        before, after = (
            [case for case in part if case.name not in replaced]
            for part in (self.must_agree[:at], self.must_agree[at:])
        )
        return replace(self, must_agree=[*before, *lighter, *after])


def is_ordinary(case: NamedBatch) -> bool:
    """Return whether a case is a batch of rows as they are."""
    return case.name.startswith("batch_")


def make_cases(rows: Rows, plan: DimPlan) -> Cases:
    """Make the cases of the gate from real rows: the same in every export of the same rows."""
    return Cases(
        must_agree=tuple(agreeing_batches(rows, plan)),
        must_be_refused=(*contradicting_batches(rows, plan), *batches_beyond(rows, plan)),
        # Where a package accepts what was tried and no more, all of it has to be tried.
        make_lighter=(lambda share: ()) if plan.row_limits else partial(_make_lighter, rows, plan),
    )


def _make_lighter(rows: Rows, plan: DimPlan, share: float) -> Iterator[NamedBatch]:
    yield from lighter_batches(rows, plan, share)
    yield from lighter_full_batch(rows, plan, share)
    yield from lighter_random_batches(rows, plan, share)


def bound_by_tried(tower: Tower, rows: Rows, device: torch.device) -> Tower:
    """Return the tower with what its cases try as bounds of its dims; its module refuses longer rows.

    The cases of its new plan are the same, but those for which eager computes nothing: see `NamedBatch`. The
    module is changed, and is still the other tower's too.
    """
    plan = tower.plan
    batches = [batch for batch in agreeing_batches(rows, plan) if _is_computed(batch, tower, device)]
    tried = _measure(batches, [input_sizes(plan, batch.inputs) for batch in batches], plan)
    bounded = tuple(
        replace(
            dim,
            high=tried.sizes[dim.name].largest,
            share=dim.share and replace(dim.share, refused_above=tried.shares[dim.name].largest),
        )
        for dim in plan.dims
    )
    strict = replace(plan, dims=bounded)
    tower.served.limit_rows(strict.row_limits)
    return replace(tower, plan=strict)


def _is_computed(batch: NamedBatch, tower: Tower, device: torch.device) -> bool:
    """Return whether eager computes a case, where it need not."""
    if not batch.beyond_rows:
        return True
    try:
        with torch.no_grad():
            outputs = tower.module({name: value.to(device) for name, value in batch.inputs.items()})
    except Exception:  # noqa: BLE001  the code of a family may raise anything
        return False
    return not find_not_finite(outputs)


def measure_tried(batches: Iterable[NamedBatch], plan: DimPlan, ran: Sequence[CaseReport]) -> Tried:
    """Return the smallest and largest size of each dim, and of its shares, in cases that agreed.

    The gate may run lighter batches in the place of one of these, which is then left out.
    """
    agreed = {case.name: case.sizes for case in ran if case.kind is CaseKind.AGREES}
    as_made = [batch for batch in batches if agreed.get(batch.name) == input_sizes(plan, batch.inputs)]
    return _measure(as_made, list(agreed.values()), plan)


def _measure(batches: Iterable[NamedBatch], every_size: Sequence[Mapping[str, int]], plan: DimPlan) -> Tried:
    sizes = {dim.name: [each[dim.name] for each in every_size] for dim in plan.dims}
    shares: dict[str, list[int]] = {dim.name: [] for dim in plan.dims if dim.share}
    for batch in batches:
        for dim in plan.dims:
            if dim.share and len(lengths := batch.inputs[dim.share.lengths]):
                shares[dim.name] += [int(bound) for bound in lengths.aminmax()]
    return Tried(
        sizes={name: _bounds(each) for name, each in sizes.items() if each},
        shares={name: _bounds(each) for name, each in shares.items() if each},
    )


def _bounds(sizes: Sequence[int]) -> TriedSizes:
    return TriedSizes(smallest=min(sizes), largest=max(sizes))
