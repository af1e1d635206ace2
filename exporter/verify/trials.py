"""All trials of a tower's packages: each case with the checks that it is subject to."""

import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence

import torch

from exporter.data.rows import NamedBatch
from exporter.verify.cases import Cases
from exporter.verify.checks.check import Check, Trial
from exporter.verify.runnable_tower import RunnableTower

Select = Callable[[Check, Cases], Sequence[NamedBatch]]  # the cases that a check is run on


class Trials:
    """Trials in the order of their cases; some of them run eager ahead of their turn, and not once more then.

    A trial keeps what was computed for it, and is forgotten after its turn.
    """

    def __init__(
        self, runnable: RunnableTower, cases: Cases, checks: Sequence[Check], select: Select
    ) -> None:
        self._runnable = runnable
        self.cases = cases
        self._checks = checks
        self._select = select
        self._ahead: dict[NamedBatch, Trial] = {}

    def bound_largest(self, seconds: float, lighter_s: float) -> None:
        """Take lighter cases for the largest batch if eager would take longer, going by a smaller one.

        None of these takes longer than `lighter_s`.

        The time is that of one core, while packages are loaded by another: on a busy machine the cases are
        the same.
        """
        usual = self.cases.usual
        if usual is None:
            return
        first, largest = self.cases.ordinary[0], self.cases.ordinary[-1]
        for batch in (first, usual):  # the first run of all takes longer than it would later
            self._try_ahead(batch).compute_expected_beside()
        usual_ms = self._try_ahead(usual).eager.busy_ms
        predicted_s = usual_ms / 1e3 * largest.count_values() / usual.count_values()
        if predicted_s > seconds:
            self.cases = self.cases.lighten(lighter_s / predicted_s)

    def prepare(self) -> None:
        """Prepare the checks."""
        ordinary = self.cases.ordinary
        largest = self._try_ahead(ordinary[-1]) if ordinary else None
        for check in self._checks:
            check.prepare(self.cases, largest)

    def __len__(self) -> int:
        return len(self.cases.must_agree) + len(self.cases.must_be_refused)

    def __iter__(self) -> Iterator[tuple[Trial, list[Check]]]:
        """Yield each trial once, with its checks, of which there may be none.

        While packages run on a case, eager runs on later ones, unless that would disturb what is timed.
        """
        cases = self.cases
        selected = [(check, self._select(check, cases)) for check in self._checks]
        coming: deque[tuple[Trial, list[Check]]] = deque()
        later: deque[Trial] = deque()
        for batch in (*cases.must_agree, *cases.must_be_refused):
            checks = [check for check, selection in selected if batch in selection]
            trial = self._ahead.pop(batch, None) or Trial(runnable=self._runnable, batch=batch)
            trial.repeats = max((check.repeats for check in checks), default=0)
            is_timed = any(check.times_eager for check in checks)
            trial.eager_meanwhile = batch in cases.must_agree and not is_timed
            if trial.eager_meanwhile:
                later.append(trial)
            if trial.eager_meanwhile or _leaves_a_core(self._runnable):
                trial.later = later
            coming.append((trial, checks))
        while coming:
            trial, checks = coming.popleft()
            if later and later[0] is trial:
                later.popleft()
            yield trial, checks

    def _try_ahead(self, batch: NamedBatch) -> Trial:
        return self._ahead.setdefault(batch, Trial(runnable=self._runnable, batch=batch))


def _leaves_a_core(runnable: RunnableTower) -> bool:
    """Return whether packages leave a core of the machine to eager; a GPU they would share."""
    return runnable.device.type == "cpu" and torch.get_num_threads() < len(os.sched_getaffinity(0))
