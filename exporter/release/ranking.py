"""Quality of a ranking model: each task's answers against its labels, and against the baseline's answers."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from exporter.config.evaluation import EvaluatedTask, TaskKind
from exporter.data.column import ColumnPlace
from exporter.options.release_gate import ReleaseGate
from exporter.release.columns import number_groups, read_group, read_numbers
from exporter.release.estimates import (
    Array,
    Codes,
    Estimate,
    count_units,
    judge_chance,
    judge_rise,
    noise_of,
)
from exporter.release.measures import (
    auc,
    calibration,
    calibration_error,
    grouped_auc,
    mean_error,
    normalised_entropy,
)
from exporter.release.releases import baseline_finding
from exporter.release.scoring import ScoredBatch
from exporter.reports.release_report import Finding, Verdict

_CHANCE_MARGIN = 0.02  # above 0.5, an AUC that a model which knows nothing may seem to have
_STILL = 1e-6  # answers that differ by less, as a fraction of the largest, are one answer


@dataclass(kw_only=True)
class TaskAnswers:
    """Answers, labels, weights and groups of one task, gathered batch by batch."""

    task: EvaluatedTask
    gate: ReleaseGate
    has_baseline: bool
    _answers: list[NDArray[np.float32]] = field(default_factory=list)
    _baseline: list[NDArray[np.float32]] = field(default_factory=list)
    _labels: list[Array] = field(default_factory=list)
    _weights: list[Array] = field(default_factory=list)
    _groups: list[pa.Array] = field(default_factory=list)

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns beside the features that the task needs."""
        return tuple(name for name in (self.label, self.weight, self.group) if name)

    @property
    def label(self) -> str:
        return self.gate.labels.get(self.task.name, self.task.label)

    @property
    def weight(self) -> str:
        return self.gate.weight_column or self.task.weight

    @property
    def group(self) -> str:
        return self.gate.group_column or self.task.group

    def add(self, batch: ScoredBatch) -> None:
        """Take the answers and labels of a batch.

        Raises:
            InvalidRows: a label, weight or group cannot be read, or a row has not one label per answer.
        """
        new = batch.answers[0]
        assert new is not None
        labels, per_row = read_numbers(batch.rows, self.label)
        place = ColumnPlace(where=batch.rows.where, column=self.label, first_row=batch.rows.first_row)
        if len(labels) != len(new[self.task.output]):
            place.refuse(
                f"holds {len(labels)} labels in {batch.rows.table.num_rows} rows, for "
                f"{len(new[self.task.output])} answers of {self.task.output}",
                hint="write one label per row, or per candidate where a model scores several",
            )
        if self.task.bitmask:
            labels = ((labels.astype(np.int64) & self.task.bitmask) > 0).astype(np.float64)
        if self.task.kind is TaskKind.BINARY and (bad := (labels != 0) & (labels != 1)).any():
            place.refuse(
                f"holds label {labels[bad][0]:g}, and {self.task.output} is a probability",
                hint="labels of a probability are 0 and 1",
            )
        repeats = np.ones(len(labels), dtype=np.int64) if per_row is None else per_row
        rows = np.repeat(np.arange(len(repeats)), repeats)
        self._labels.append(labels)
        self._answers.append(new[self.task.output])
        if self.has_baseline and (old := batch.answers[1]) is not None:
            self._baseline.append(old[self.task.output])
        if self.weight:
            weights, of_weights = read_numbers(batch.rows, self.weight)
            self._weights.append(weights if of_weights is not None else weights[rows])
            if len(self._weights[-1]) != len(labels):
                place.refuse(
                    f"holds {len(labels)} labels, for {len(weights)} weights of {self.weight}",
                    hint="write one weight per row, or per label",
                )
        if self.group:
            self._groups.append(read_group(batch.rows, self.group).take(pa.array(rows)))

    def judge(self) -> Iterator[Finding]:
        """Yield the findings of the task."""
        labels = np.concatenate(self._labels)
        scored = _Scored(
            labels=labels,
            weights=np.concatenate(self._weights) if self._weights else np.ones(len(labels)),
            groups=number_groups(self._groups) if self._groups else None,
        )
        new = np.concatenate(self._answers).astype(np.float64)
        has_old = self.has_baseline and self._baseline
        old = np.concatenate(self._baseline).astype(np.float64) if has_old else None
        subject = self.task.output
        yield from judge_answers(new, subject)
        if not np.isfinite(new).all():
            return
        if old is not None and (bad := ~np.isfinite(old)).any():
            yield baseline_finding(f"{int(bad.sum()):,} of its answers are NaN or infinite", subject)
            old = None
        for measure in _measures(self.task, self.gate, grouped=bool(self.group)):
            yield measure.judge(scored, new, old, subject)
        if self.task.kind is TaskKind.BINARY:
            yield _judge_chance(scored, new, subject)
        for metric in self.task.unsupported:
            detail = f"the config's {metric} is not computed; the other measures of the task are"
            yield Finding(measure=metric, subject=subject, verdict=Verdict.NO_BASELINE, detail=detail)


@dataclass(frozen=True, kw_only=True, eq=False)
class _Scored:
    labels: Array
    weights: Array
    groups: Codes | None


@dataclass(frozen=True, kw_only=True)
class _Measure:
    """A measure, and how much worse than the baseline's it may be."""

    name: str
    compute: Callable[[_Scored, Array], Estimate | None]
    badness: Callable[[float], float]  # larger is worse
    allowed: float
    relative: bool = False  # `allowed` is a fraction of the baseline's badness
    by_group: bool = False  # the influences are those of groups

    def judge(self, scored: _Scored, new: Array, old: Array | None, subject: str) -> Finding:
        """Return the finding on the answers of the candidate and of the baseline."""
        ours = self.compute(scored, new)
        if ours is None:
            return Finding(
                measure=self.name,
                subject=subject,
                rows=len(scored.labels),
                verdict=Verdict.TOO_FEW,
                detail="all labels are equal, so that there is nothing to measure",
            )
        found = Finding(
            measure=self.name,
            subject=subject,
            value=ours.value,
            allowed=self.allowed,
            rows=ours.rows,
            verdict=Verdict.NO_BASELINE,
        )
        theirs = None if old is None else self.compute(scored, old)
        if theirs is None:
            return found
        scale = abs(self.badness(theirs.value)) if self.relative else 1.0
        rise = (self.badness(ours.value) - self.badness(theirs.value)) / (scale or 1.0)
        groups = None if self.by_group else scored.groups
        noise = noise_of(ours.influence - theirs.influence, groups) / (scale or 1.0)
        units = count_units(ours.rows, groups)
        verdict = judge_rise(rise, noise, self.allowed, units)
        return found.model_copy(
            update={
                "baseline": theirs.value,
                "verdict": verdict,
                "detail": describe_change(verdict, rise, noise, self.allowed, units),
            }
        )


def describe_change(verdict: Verdict, rise: float, noise: float, allowed: float, units: int) -> str:
    """Return a sentence on a change for the worse, with its noise."""
    change = f"worse by {rise:.4g}" if rise > 0 else f"better by {-rise:.4g}"
    text = f"{change} with a standard error of {noise:.2g}; allowed are {allowed:g}"
    if verdict is Verdict.TOO_FEW:
        text += f": {units:,} rows or groups are too few to tell"
    return text


def judge_answers(answers: NDArray[np.float64], subject: str) -> Iterator[Finding]:
    """Yield a failure if answers are not finite, or the same for every row."""
    rows = len(answers)
    if not np.isfinite(answers).all():
        bad = int((~np.isfinite(answers)).reshape(rows, -1).any(axis=1).sum())
        detail = f"{bad:,} of {rows:,} answers are NaN or infinite"
        yield Finding(measure="finite", subject=subject, rows=rows, verdict=Verdict.FAILED, detail=detail)
        return
    spread = float(np.ptp(answers, axis=0).max()) if rows else 0.0
    scale = float(np.abs(answers).max()) if rows else 0.0
    still = rows > 1 and spread <= _STILL * scale
    yield Finding(
        measure="spread",
        subject=subject,
        value=spread,
        rows=rows,
        verdict=Verdict.FAILED if still else Verdict.PASSED if rows > 1 else Verdict.TOO_FEW,
        detail="every row has the same answer: a part of the model is dead" if still else "",
    )


def _judge_chance(scored: _Scored, answers: Array, subject: str) -> Finding:
    """Return whether the AUC is above that of answers which know nothing of the labels."""
    estimate = auc(answers, scored.labels, scored.weights)
    if estimate is None:
        return Finding(
            measure="above_chance", subject=subject, verdict=Verdict.TOO_FEW, detail="equal labels"
        )
    noise = noise_of(estimate.influence, scored.groups)
    units = count_units(estimate.rows, scored.groups)
    verdict = judge_chance(estimate.value, noise, 0.5, _CHANCE_MARGIN, units)
    return Finding(
        measure="above_chance",
        subject=subject,
        value=estimate.value,
        allowed=0.5,
        rows=estimate.rows,
        verdict=verdict,
        detail=f"AUC {estimate.value:.4f} with a standard error of {noise:.2g}",
    )


def _measures(task: EvaluatedTask, gate: ReleaseGate, *, grouped: bool) -> Sequence[_Measure]:
    """Return the measures of a task's kind."""
    if task.kind is TaskKind.NUMBER:
        return (
            _errors("mae", gate, lambda scored, answers: np.abs(answers - scored.labels)),
            _errors("mse", gate, lambda scored, answers: (answers - scored.labels) ** 2),
        )
    if task.kind is TaskKind.CLASSES:
        right = _Measure(
            name="accuracy",
            compute=lambda scored, answers: mean_error(
                (answers.argmax(axis=1) == scored.labels).astype(np.float64), scored.weights
            ),
            badness=lambda value: -value,
            allowed=gate.accuracy_drop,
        )
        return (right,)
    measures = [
        _Measure(
            name="auc",
            compute=lambda scored, answers: auc(answers, scored.labels, scored.weights),
            badness=lambda value: -value,
            allowed=gate.auc_drop,
        ),
        _Measure(
            name="normalized_entropy",
            compute=lambda scored, answers: normalised_entropy(answers, scored.labels, scored.weights),
            badness=lambda value: value,
            allowed=gate.ne_rise,
            relative=True,
        ),
        _Measure(
            name="calibration",
            compute=lambda scored, answers: calibration(answers, scored.labels, scored.weights),
            badness=lambda value: abs(value - 1),
            allowed=gate.calibration_rise,
        ),
        _Measure(
            name="calibration_error",
            compute=lambda scored, answers: calibration_error(answers, scored.labels, scored.weights),
            badness=lambda value: value,
            allowed=gate.calibration_error_rise,
        ),
    ]
    if grouped:
        measures.insert(1, _grouped(gate))
    return measures


def _grouped(gate: ReleaseGate) -> _Measure:
    def compute(scored: _Scored, answers: Array) -> Estimate | None:
        assert scored.groups is not None
        return grouped_auc(answers, scored.labels, scored.groups)

    return _Measure(
        name="grouped_auc",
        compute=compute,
        badness=lambda value: -value,
        allowed=gate.gauc_drop,
        by_group=True,
    )


def _errors(name: str, gate: ReleaseGate, errors: Callable[[_Scored, Array], Array]) -> _Measure:
    return _Measure(
        name=name,
        compute=lambda scored, answers: mean_error(errors(scored, answers), scored.weights),
        badness=lambda value: value,
        allowed=gate.error_rise,
        relative=True,
    )
