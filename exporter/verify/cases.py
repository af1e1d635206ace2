"""Verification cases: batches on which package and eager must agree, and batches that must be refused."""

from collections.abc import Sequence
from dataclasses import dataclass

from exporter.data.batch import NamedBatch, Rows, contradicting_batches
from exporter.data.sweep import agreeing_batches
from exporter.dims.plan import DimPlan


@dataclass(frozen=True, kw_only=True)
class Cases:
    """All batches that one tower's packages are verified on; they are the tower's inputs."""

    must_agree: Sequence[NamedBatch]
    must_be_refused: Sequence[NamedBatch]  # their inputs contradict each other


def make_cases(rows: Rows, plan: DimPlan) -> Cases:
    """Make the cases of the gate from real rows: the same in every export of the same rows."""
    return Cases(
        must_agree=tuple(agreeing_batches(rows, plan)),
        must_be_refused=tuple(contradicting_batches(rows, plan)),
    )
