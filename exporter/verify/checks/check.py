"""Check: the interface of everything that is verified about a tower's packages, case by case.

A new check is a file beside this one and an entry in `exporter.verify.check_list`: then the gate and
`slipway check` run it, and the board knows its error.
"""

import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from exporter.data.rows import NamedBatch
from exporter.dims.torch_dims import input_sizes
from exporter.errors import ExportError, VerificationFailed
from exporter.manifest import CaseReport, VerificationReport
from exporter.verify.cases import Cases
from exporter.verify.numerics import find_not_finite
from exporter.verify.runnable_tower import RunnableTower
from exporter.verify.runner import Answer, PackageRunner, Refused

REPEATS_LIMIT_S = 0.05  # no repeat of a call begins later


class TimedOutputs(NamedTuple):
    """Outputs, and how long they took: in all, and without what the thread waited for a core on the CPU."""

    outputs: dict[str, Tensor]
    milliseconds: float
    busy_ms: float


class Agreed(NamedTuple):
    """Eager's outputs that the packages agreed with, and the usual scales that replace smaller ones."""

    outputs: Mapping[str, Tensor]
    usual_scales: Mapping[str, float]


@dataclass(kw_only=True, eq=False)
class Trial:
    """One case of one tower, as its checks see it: eager and the packages run on it once for all of them."""

    runnable: RunnableTower
    batch: NamedBatch
    runner: PackageRunner | None = None  # None for checks of programs, which need no package
    repeats: int = 0  # of the packages' run, at most
    eager_meanwhile: bool = False  # eager's outputs are wanted, and its time is not
    later: deque["Trial"] = field(default_factory=deque)  # of these eager can run as well, while packages run
    agreed: Agreed | None = None  # once the packages have given what eager does

    @cached_property
    def sizes(self) -> dict[str, int]:
        """The size of each dynamic dim."""
        return input_sizes(self.runnable.tower.plan, self.batch.inputs)

    @cached_property
    def eager(self) -> TimedOutputs:
        """Outputs of eager, and how long they took."""
        begun, begun_busy = time.perf_counter(), time.thread_time()
        outputs = self.runnable.run_eager(self.batch.inputs)
        milliseconds, busy_ms = (time.perf_counter() - begun) * 1e3, (time.thread_time() - begun_busy) * 1e3
        return TimedOutputs(
            outputs, milliseconds, busy_ms if self.runnable.device.type == "cpu" else milliseconds
        )

    @property
    def expected(self) -> dict[str, Tensor]:
        """The outputs of eager."""
        return self.eager.outputs

    @cached_property
    def expected_in_fp32(self) -> dict[str, Tensor]:
        """The outputs of the model in fp32, where anything is of lower precision."""
        assert self.runnable.fp32 is not None
        return self.runnable.fp32(self.batch.inputs)

    @cached_property
    def answer(self) -> Answer | Refused:
        """Outputs of the packages and what their repeats tell, or their refusal of the inputs."""
        try:
            call = self.running.begin(self.batch.inputs, repeats=self.repeats, limit_s=REPEATS_LIMIT_S)
            if self.eager_meanwhile:
                self.try_eager()
            while self.later and self._has_time_for(self.later[0]) and not call.has_ended:
                self.later.popleft().try_eager()
            return call.answer()
        except Refused as refusal:
            return refusal

    def find_eager_failure(self) -> str:
        """Return why eager computes nothing for rows that hold more than real ones; empty if it does.

        The packages run first, as eager runs beside them; their end is not judged here.
        """
        if not self.batch.beyond_rows:
            return ""
        if self.runner is not None:
            with suppress(Exception):  # it is raised again by the check that needs the answer
                _ = self.answer
        try:
            outputs = self.expected
        except Exception as error:  # noqa: BLE001  the code of a family may raise anything
            return f"{type(error).__name__}: {error}".partition("\n")[0]
        return find_not_finite(outputs)

    @property
    def outputs(self) -> dict[str, Tensor] | Refused:
        """The outputs of the packages, or their refusal of the inputs."""
        return self.answer if isinstance(self.answer, Refused) else self.answer.outputs

    def _has_time_for(self, other: "Trial") -> bool:
        """Return whether eager computes another case about as fast as packages run on this one.

        Repeats are at least two runs more. A small case would else wait for the eager run of a large one.
        """
        runs = 3 if self.repeats else 1
        return other.batch.count_values() <= runs * self.batch.count_values()

    def try_eager(self) -> None:
        """Compute what the packages' outputs are compared with, if that is possible.

        The check that needs it computes it again otherwise, and reports why it fails.
        """
        with suppress(Exception):
            self.compute_expected_beside()

    def compute_expected_beside(self) -> None:
        """Compute what the packages' outputs are compared with on one thread, as they have the other cores.

        A thread that waits for a core holds up all the others, and small calls many times.
        """
        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        try:
            _ = self.eager
            if self.runnable.fp32 is not None:
                _ = self.expected_in_fp32
        finally:
            torch.set_num_threads(threads)

    @property
    def running(self) -> PackageRunner:
        """The loaded packages."""
        assert self.runner is not None, "a check of packages is run with packages"
        return self.runner


@dataclass(frozen=True, kw_only=True)
class CheckResult:
    """The result of one check in one case.

    The gate raises the error of a failure at once; one with a `report` it raises after all cases.
    """

    passed: bool = True
    sizes: Mapping[str, int] | None = None
    detail: str = ""
    of_allowed: float | None = None  # the largest difference, as a fraction of the allowed one
    report: CaseReport | None = None  # goes into the manifest
    error: ExportError | None = None  # default: the class `Check.error`, with place and detail


class Check(ABC):
    """One check of a tower's packages: the cases it applies to, its run on one of them, and its error."""

    name: ClassVar[str]  # in the findings of `slipway check`
    title: ClassVar[str]  # for people
    activity: ClassVar[str] = ""  # as progress of a case that the check is the first of; default: the title
    error: ClassVar[type[ExportError]] = VerificationFailed  # raised by the gate where the check fails
    error_names_case: ClassVar[bool] = True  # in the error's `where`
    needs_packages: ClassVar[bool] = True  # else it runs before them, on the traced programs
    gate_only: ClassVar[bool] = False  # `slipway check` neither runs nor shows it
    repeats: ClassVar[int] = 0  # that it needs of the packages' run in each case, at most
    times_eager: ClassVar[bool] = False  # so that nothing else may run beside eager in its cases

    def __init__(self, runnable: RunnableTower) -> None:
        self.runnable = runnable

    @abstractmethod
    def select(self, cases: Cases) -> Sequence[NamedBatch]:
        """Return the cases that the check applies to."""

    def select_for_gate(self, cases: Cases) -> Sequence[NamedBatch]:
        """Return the cases that the gate runs it on: a few of those it applies to, where it takes long."""
        return self.select(cases)

    def prepare(self, cases: Cases, largest: Trial | None) -> None:
        """Take from all cases what `run` needs in each of them; called once, before packages run.

        `largest` is the trial of the largest ordinary batch, if there is one: what it computes is kept.
        """
        return

    @abstractmethod
    def run(self, trial: Trial) -> CheckResult:
        """Check one case."""

    def describe_place(self, trial: Trial) -> str:
        """Return the beginning of the message of an error that the gate meets while it runs the check."""
        return f"{self.runnable.title}: {trial.batch.name} ({describe_sizes(trial.sizes)})"

    def conclude(self, report: VerificationReport) -> VerificationReport:
        """Return the report with what the check found over all cases.

        Raises:
            ExportError: it is too much over all cases.
        """
        return report


def describe_sizes(sizes: Mapping[str, int]) -> str:
    """Return sizes in words: "seq_clicks=3, batch=1"."""
    return ", ".join(f"{name}={size}" for name, size in sizes.items())
