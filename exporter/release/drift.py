"""Drift of inputs: the rows of a release beside those that its baseline was judged on."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError

from exporter.errors import ExportError, InvalidSpec
from exporter.options.release_gate import ReleaseGate
from exporter.redaction import name_first
from exporter.release.estimates import CONFIDENCE_Z, judge_rise
from exporter.release.labelled_rows import LabelledRows, RowCounts, Sample
from exporter.reports.input_statistics import (
    MOST_FEATURES,
    FeatureStatistics,
    InputStatistics,
    ValueKind,
)
from exporter.reports.release_report import REPORT_NAME, Finding, ReleaseReport, Verdict
from exporter.storage.open import open_store

_HEAD = 31  # most frequent ids, which with all others make 32 bins
_TENTHS = np.arange(1, 10) / 10
_LENGTH_BINS = (0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)  # upper ends; longer ones are in the last
_LEAST_SHARE = 1e-4  # of a bin, so that an empty one does not make the index infinite
_FEWEST_IN_BIN = 10  # rows with an id, below which it is frequent by chance in one of the samples
_MOST_NAMED = 10  # features in one sentence
_TIMES = ((9e8, 5e9), (9e11, 5e12))  # seconds and milliseconds of the years 1998 to 2128
_LONGEST_REPORT = 64 << 20  # bytes

Values = NDArray[np.generic]


def describe_rows(rows: LabelledRows) -> InputStatistics:
    """Return the statistics of rows that have been read."""
    return _describe_samples(rows.samples, rows.counts)


def _describe_samples(samples: Mapping[str, Sample], counts: RowCounts) -> InputStatistics:
    names = list(samples)
    features = {name: describe_sample(name, samples[name], counts) for name in names[:MOST_FEATURES]}
    return InputStatistics(rows=counts.read, features=features, left_out=max(0, len(names) - MOST_FEATURES))


def describe_sample(name: str, sample: Sample, counts: RowCounts) -> FeatureStatistics:
    """Return the statistics of one feature."""
    values = sample.values()
    kind = _kind_of(values, is_ids=sample.is_ids)
    bins = _bins_of(values, kind)
    return FeatureStatistics(
        kind=kind,
        rows=sample.rows,
        null_share=counts.nulls[name] / max(1, counts.read),
        unknown_share=counts.unknown[name] / max(1, counts.ids[name]),
        bins=tuple(bins.tolist()),
        shares=_shares(values, bins, kind),
        length_shares=_length_shares(sample.lengths()),
        turnover=_turnover(values) if kind is ValueKind.IDS else 0.0,
    )


def _turnover(values: Values) -> float:
    """Return how far ids of the later half of the rows are others than those of the earlier half.

    None of a few ids are new every day, in whatever order the rows lie.
    """
    if len(np.unique(values)) <= _HEAD:
        return 0.0
    middle = len(values) // 2
    earlier, later = values[:middle], values[middle:]
    bins = _bins_of(earlier, ValueKind.IDS)
    shares = (_shares(later, bins, ValueKind.IDS), _shares(earlier, bins, ValueKind.IDS))
    index = _Index.of(shares, (len(later), len(earlier)), merge_rare=True)
    return max(0.0, index.value - index.by_chance - CONFIDENCE_Z * index.noise)


def _kind_of(values: Values, *, is_ids: bool) -> ValueKind:
    if len(values):
        low, high = np.quantile(values.astype(np.float64), [0.1, 0.9])
        if any(first <= low and high <= last for first, last in _TIMES):
            return ValueKind.TIMES
    return ValueKind.IDS if is_ids else ValueKind.NUMBERS


def _bins_of(values: Values, kind: ValueKind) -> NDArray[np.float64]:
    """Return the most frequent ids, or the upper ends of tenths of the numbers."""
    if kind is ValueKind.TIMES or not len(values):
        return np.empty(0)
    if kind is ValueKind.NUMBERS:
        return np.unique(np.quantile(values.astype(np.float64), _TENTHS))
    ids, counts = np.unique(values, return_counts=True)
    return np.sort(ids[np.argsort(-counts, kind="stable")[:_HEAD]].astype(np.float64))


def _shares(
    values: Values, bins: Sequence[float] | NDArray[np.float64], kind: ValueKind
) -> tuple[float, ...]:
    """Return the share of values in each bin, and of those in none."""
    ends, numbers = np.asarray(bins, dtype=np.float64), values.astype(np.float64)
    if not len(numbers):
        return (0.0,) * (len(ends) + 1)
    place = np.searchsorted(ends, numbers, side="left")
    if kind is ValueKind.IDS and len(ends):
        at = np.minimum(place, len(ends) - 1)
        place = np.where(ends[at] == numbers, at, len(ends))
    counts = np.bincount(place, minlength=len(ends) + 1)
    return tuple((counts / len(numbers)).tolist())


def _length_shares(lengths: NDArray[np.int64]) -> tuple[float, ...]:
    counts = np.bincount(np.searchsorted(_LENGTH_BINS, lengths), minlength=len(_LENGTH_BINS) + 1)
    return tuple((counts / max(1, len(lengths))).tolist())


def read_statistics(uri: str) -> InputStatistics | None:
    """Return the statistics in the release.json of an artifact; None if there are none that can be read."""
    try:
        data = open_store(uri).read(REPORT_NAME, limit=_LONGEST_REPORT)
        return ReleaseReport.model_validate_json(data).statistics
    except (ExportError, ValidationError):
        return None


def judge_drift(rows: LabelledRows, before: InputStatistics | None, gate: ReleaseGate) -> Iterator[Finding]:
    """Yield the findings on the inputs: one per feature that did not pass, and the largest that did."""
    yield from judge_samples(rows.samples, rows.counts, before, gate)


def judge_samples(
    samples: Mapping[str, Sample], counts: RowCounts, before: InputStatistics | None, gate: ReleaseGate
) -> Iterator[Finding]:
    """Yield the findings on samples of features, and on the counts of all rows."""
    now = _describe_samples(samples, counts)
    if before is None:
        detail = "there is no baseline with statistics of its rows in its release.json"
        yield Finding(measure="drift", rows=now.rows, verdict=Verdict.NO_BASELINE, detail=detail)
    old = {} if before is None else before.features
    same = {name: (each, old[name]) for name, each in now.features.items() if name in old}
    yield from _worst(_judge_share("nulls", now, before, gate.null_rise))
    yield from _worst(_judge_share("unknown_ids", now, before, gate.unknown_rise))
    unsteady = sorted(_find_unsteady(now, old, gate))
    told = {name: both for name, both in same.items() if name not in unsteady}
    yield from _worst(_judge_psi(samples, told, gate.psi))
    yield from _worst(_judge_lengths(same, gate.psi))
    if unsteady:
        named = ", ".join(unsteady[:_MOST_NAMED]) + (" and others" if len(unsteady) > _MOST_NAMED else "")
        detail = (
            f"values of {named} are times, ids that are others in the later rows of the baseline than in its "
            "earlier ones, or exempt by drift_exempt: no index of them"
        )
        yield Finding(measure="psi", subject=unsteady[0], verdict=Verdict.NO_BASELINE, detail=detail)


def _find_unsteady(
    now: InputStatistics, old: Mapping[str, FeatureStatistics], gate: ReleaseGate
) -> Iterator[str]:
    """Yield the features whose values are expected to be others every time.

    The turnover of the release's own rows excuses nothing: ids may have begun to jump.

    Raises:
        InvalidSpec: the gate exempts a feature that there is not.
    """
    for name in gate.drift_exempt:
        if name not in now.features and not now.left_out:
            raise InvalidSpec(
                f"release_gate.drift_exempt names feature {name!r}, which the model does not read",
                hint=f"its features are {name_first(sorted(now.features))}",
                where="release_gate.drift_exempt",
            )
    for name, each in now.features.items():
        kinds = {each.kind, old[name].kind if name in old else each.kind}
        turns_over = name in old and old[name].turnover > gate.psi
        if ValueKind.TIMES in kinds or turns_over or name in gate.drift_exempt:
            yield name


def _worst(findings: Iterator[Finding]) -> Iterator[Finding]:
    """Yield what did not pass, and of the others the one with the largest value."""
    settled: list[Finding] = []
    for finding in findings:
        if finding.verdict in (Verdict.FAILED, Verdict.TOO_FEW):
            yield finding
        else:
            settled.append(finding)
    if settled:
        yield max(settled, key=lambda finding: finding.value or 0.0)


def _judge_share(
    measure: str, now: InputStatistics, before: InputStatistics | None, allowed: float
) -> Iterator[Finding]:
    for name, each in now.features.items():
        share = each.null_share if measure == "nulls" else each.unknown_share
        finding = Finding(
            measure=measure,
            subject=name,
            value=share,
            allowed=allowed,
            rows=now.rows,
            verdict=Verdict.NO_BASELINE,
        )
        if before is None or name not in before.features:
            # Ids that no table has a row for are wrong whatever was there before.
            if measure == "unknown_ids" and share > allowed:
                detail = f"{share:.2%} of the ids have no row in their table"
                finding = finding.model_copy(update={"verdict": Verdict.FAILED, "detail": detail})
            yield finding
            continue
        old = before.features[name]
        was = old.null_share if measure == "nulls" else old.unknown_share
        noise = float(np.sqrt(share * (1 - share) / max(1, now.rows) + was * (1 - was) / max(1, before.rows)))
        verdict = judge_rise(share - was, noise, allowed, min(now.rows, before.rows))
        detail = f"{share:.2%} of them, after {was:.2%}; a rise of {allowed:.2%} is allowed"
        yield finding.model_copy(update={"baseline": was, "verdict": verdict, "detail": detail})


def _judge_psi(
    samples: Mapping[str, Sample],
    same: Mapping[str, tuple[FeatureStatistics, FeatureStatistics]],
    allowed: float,
) -> Iterator[Finding]:
    for name, (now, old) in same.items():
        shares = (_shares(samples[name].values(), old.bins, old.kind), old.shares)
        is_ids = old.kind is ValueKind.IDS
        yield _judge_index("psi", name, shares, (now.rows, old.rows), allowed, merge_rare=is_ids)


def _judge_lengths(
    same: Mapping[str, tuple[FeatureStatistics, FeatureStatistics]], allowed: float
) -> Iterator[Finding]:
    for name, (now, old) in same.items():
        both = (now.length_shares, old.length_shares)
        if not any(both[0]) or not any(both[1]):
            continue  # every row has one value, and no length
        yield _judge_index("psi_of_lengths", name, both, (now.rows, old.rows), allowed)


@dataclass(frozen=True, kw_only=True)
class _Index:
    """A population stability index, with what equal distributions would give and how much that scatters."""

    value: float
    bins: int
    by_chance: float
    noise: float

    @classmethod
    def of(
        cls, shares: tuple[Sequence[float], Sequence[float]], rows: tuple[int, int], *, merge_rare: bool
    ) -> "_Index":
        if merge_rare:
            shares = _merge_rare(shares, rows)
        unit = 1 / max(1, rows[0]) + 1 / max(1, rows[1])
        bins = max(1, _count_used(shares))
        return cls(
            value=stability_index(*shares),
            bins=bins,
            by_chance=(bins - 1) * unit,
            noise=float(np.sqrt(2 * (bins - 1))) * unit,
        )


def _judge_index(
    measure: str,
    name: str,
    shares: tuple[Sequence[float], Sequence[float]],
    rows: tuple[int, int],
    allowed: float,
    *,
    merge_rare: bool = False,
) -> Finding:
    """Return the finding on one index; equal distributions give one that grows as rows become fewer.

    It is about chi-squared then, with as many degrees of freedom as there are bins, less one: between its
    mean and a bound for its noise nobody can tell.
    """
    unit = 1 / max(1, rows[0]) + 1 / max(1, rows[1])
    is_told = (_count_used(shares) - 1) * unit <= allowed
    index = _Index.of(shares, rows, merge_rare=merge_rare)
    excess = index.value - index.by_chance - allowed
    if is_told and excess <= 0:
        verdict = Verdict.PASSED
    else:
        is_sure = is_told and excess > CONFIDENCE_Z * index.noise
        verdict = Verdict.FAILED if is_sure else Verdict.TOO_FEW
    detail = (
        f"{index.value:.4g} over {index.bins} bins; equal distributions would give about "
        f"{index.by_chance:.2g}"
    )
    return Finding(
        measure=measure,
        subject=name,
        value=index.value,
        allowed=allowed,
        rows=rows[0],
        verdict=verdict,
        detail=detail,
    )


def _count_used(shares: tuple[Sequence[float], Sequence[float]]) -> int:
    return sum(max(pair) > 0 for pair in zip(*shares, strict=True))


def _merge_rare(
    shares: tuple[Sequence[float], Sequence[float]], rows: tuple[int, int]
) -> tuple[Sequence[float], Sequence[float]]:
    """Put ids that few rows of either sample have into the last bin, which is of all others.

    The most frequent of many rare ids were drawn once or twice more than the rest, and are others the next
    time.
    """
    both = np.asarray(shares)
    is_rare = (both * np.asarray(rows)[:, None]).max(axis=0) < _FEWEST_IN_BIN
    is_rare[-1] = True
    merged = np.column_stack([both[:, ~is_rare], both[:, is_rare].sum(axis=1)]).tolist()
    return merged[0], merged[1]


def stability_index(now: Sequence[float], before: Sequence[float]) -> float:
    """Return the population stability index: the sum of (p - q) * ln(p / q) over all bins."""
    p, q = (np.maximum(np.asarray(shares), _LEAST_SHARE) for shares in (now, before))
    return float(((p - q) * np.log(p / q)).sum())
