"""The record of a run of the board, and how it differs from an earlier run; needs no torch."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path

from exporter.manifest import CaseKind, CaseReport
from exporter.outcome import Failure, TowerOutcome
from exporter.spec import Frozen
from exporter.stages import Stage

# Beginning of a verification case's name -> the class of sizes that the case belongs to.
SIZES: Mapping[str, str] = {
    "batch_1": "one row",
    "batch_": "many rows",
    "empty": "empty histories",
    "all_histories_empty": "empty histories",
    "no_values": "empty histories",
    "random": "drawn sizes",
    "low_counts": "short histories",
    "held_counts": "short histories",
    "middle_counts": "long histories",
    "high_counts": "long histories",
    "full": "long histories",
}
_OTHER_SIZES, _REFUSED = "other sizes", "contradictions refused"
SIZE_CLASSES = (*dict.fromkeys(SIZES.values()), _OTHER_SIZES, _REFUSED)
STAGES = (Stage.CONFIG, Stage.CHECKPOINT, Stage.ROWS, Stage.TRACE, Stage.COMPILE, Stage.VERIFY, Stage.PUBLISH)


ALL = "all"  # the `tower` of a row for an export whose towers are unknown


class Result(StrEnum):
    """The result of a row, or of one of its stages or size classes."""

    PASS = "pass"
    FAIL = "fail"
    LEFT_OUT = "left out"  # the row says why
    NOT_REACHED = "-"  # an earlier stage failed


class Row(Frozen):
    """One tower of one case: results of its stages, and of the gate at each class of sizes."""

    family: str
    model: str
    tower: str
    mode: str
    precision: str
    result: Result
    stages: dict[str, Result] = {}
    sizes: dict[str, Result] = {}
    why: str = ""  # the reason why the row failed or was left out
    difference: float | None = None  # the largest difference from eager, as a fraction of the allowed one
    seconds: float | None = None

    @property
    def key(self) -> tuple[str, ...]:
        return (self.model, self.tower, self.mode, self.precision)

    def covers(self, other: "Row") -> bool:
        """Return whether this row covers the other: same tower, or all towers of the same export."""
        same = (self.model, self.mode, self.precision) == (other.model, other.mode, other.precision)
        return same and self.tower in {other.tower, ALL}


class Record(Frozen):
    """One run of the board."""

    at: str  # RFC 3339, UTC
    torch: str
    rows: tuple[Row, ...]

    @property
    def failed(self) -> tuple[Row, ...]:
        return tuple(row for row in self.rows if row.result is Result.FAIL)


class Changes(Frozen):
    """Differences from an earlier run; rows that were left out this time do not count."""

    new: tuple[str, ...] = ()
    regressed: tuple[str, ...] = ()
    mended: tuple[str, ...] = ()
    gone: tuple[str, ...] = ()


def row_of(
    outcome: TowerOutcome, *, family: str, case: tuple[str, str, str], finished: Iterable[str], seconds: float
) -> Row:
    """Return the row of a tower that was exported."""
    model, mode, precision = case
    done = set(finished)
    failed_at = next((stage for stage in STAGES if stage not in done), None)
    entry = outcome.entry
    return Row(
        family=family,
        model=model,
        tower=outcome.tower,
        mode=mode,
        precision=precision,
        result=Result.FAIL if outcome.failure else Result.PASS,
        stages={
            stage: _stage(stage, done, failed_at, failed=outcome.failure is not None) for stage in STAGES
        },
        sizes=_sizes(entry.verified.cases) if entry else _failing_size(outcome.failure),
        why=f"{outcome.failure.code}: {outcome.failure.message}" if outcome.failure else "",
        difference=_of_tolerance(entry.verified.cases, entry.verified.tolerance) if entry else None,
        seconds=round(seconds, 1),
    )


def changes(earlier: Record | None, now: Record) -> Changes:
    """Compare a run with an earlier one; without an earlier run there are no changes."""
    if earlier is None:
        return Changes()
    left_out = {row.key for row in now.rows if row.result is Result.LEFT_OUT}
    before = [row for row in earlier.rows if row.result is not Result.LEFT_OUT and row.key not in left_out]
    after = [row for row in now.rows if row.result is not Result.LEFT_OUT]
    kept = {row.key for row in merge_records(earlier, now).rows}
    moved = [
        (_narrower(row, old), old.result, row.result) for row in after for old in _earlier_rows(before, row)
    ]
    return Changes(
        new=tuple(_name(row) for row in after if not _earlier_rows(before, row)),
        regressed=tuple(_name(row) for row, *both in moved if both == [Result.PASS, Result.FAIL]),
        mended=tuple(_name(row) for row, *both in moved if both == [Result.FAIL, Result.PASS]),
        gone=tuple(_name(row) for row in before if row.key not in kept and not _earlier_rows(after, row)),
    )


def _earlier_rows(rows: Sequence[Row], row: Row) -> list[Row]:
    """Return the earlier run's rows for the same case, or else rows that cover it or that it covers."""
    same = [each for each in rows if each.key == row.key]
    return same or [each for each in rows if each.covers(row) or row.covers(each)]


def _narrower(one: Row, other: Row) -> Row:
    return other if one.tower == ALL else one


def _name(row: Row) -> str:
    return " ".join(row.key)


def merge_records(earlier: Record | None, now: Record) -> Record:
    """Return the record to keep: this run, with earlier results for cases that it left out."""
    rows: list[Row] = []
    for row in now.rows:
        covered = [each for each in (earlier.rows if earlier else ()) if row.covers(each)]
        rows += (covered or [row]) if row.result is Result.LEFT_OUT else [row]
    return now.model_copy(update={"rows": tuple(rows)})


def merge_unfinished(earlier: Record | None, rows: Sequence[Row], *, torch: str) -> Record:
    """Return the record of an unfinished run: its rows, and earlier results for all other cases."""
    known = earlier.rows if earlier else ()
    others = [each for each in known if not any(row.covers(each) for row in rows)]
    done = merge_records(earlier, Record(at=now(), torch=torch, rows=tuple(rows)))
    return done.model_copy(update={"rows": (*done.rows, *others)})


def read_record(path: Path) -> Record | None:
    """Read the recorded run; None if there is none yet."""
    return Record.model_validate_json(path.read_bytes()) if path.exists() else None


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _stage(stage: Stage, done: set[str], failed_at: Stage | None, *, failed: bool) -> Result:
    if stage in done:
        return Result.PASS
    return Result.FAIL if failed and stage is failed_at else Result.NOT_REACHED


def _sizes(reports: Iterable[CaseReport]) -> dict[str, Result]:
    sizes: dict[str, Result] = {}
    for report in reports:
        size = _REFUSED if report.kind is CaseKind.REFUSES else _size_class(report.name)
        passed = report.passed and sizes.get(size, Result.PASS) is Result.PASS
        sizes[size] = Result.PASS if passed else Result.FAIL
    return sizes


def _failing_size(failure: Failure | None) -> dict[str, Result]:
    """Return the size class of the verification case that a failure names; the other classes are unknown."""
    from exporter.verify.check_list import CODES_NAMING_A_CASE  # loads torch: records are read without it

    if failure is None or failure.code not in CODES_NAMING_A_CASE:
        return {}
    return {_size_class(failure.where): Result.FAIL}


def _size_class(case: str) -> str:
    if case in SIZES:
        return SIZES[case]
    starts = (start for start in SIZES if start != "batch_1" and case.startswith(start))
    return next((SIZES[start] for start in starts), _OTHER_SIZES)


def _of_tolerance(reports: Iterable[CaseReport], tolerance: float) -> float:
    fractions = [
        report.largest_difference / (report.scale * tolerance)
        for report in reports
        if report.largest_difference is not None and report.scale
    ]
    return round(max(fractions, default=0.0), 4)
