"""Check: the interface of everything that is verified about a tower's packages, case by case.

A new check is a file beside this one and an entry in `exporter.verify.check_list`: then the gate and
`slipway check` run it, and the board knows its error.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

from torch import Tensor

from exporter.data.rows import NamedBatch
from exporter.dims.torch_dims import input_sizes
from exporter.errors import ExportError, VerificationFailed
from exporter.manifest import CaseReport, VerificationReport
from exporter.verify.cases import Cases
from exporter.verify.runnable_tower import RunnableTower
from exporter.verify.runner import PackageRunner, Refused


@dataclass(frozen=True, kw_only=True, eq=False)
class Trial:
    """One case of one tower, as its checks see it: eager and the packages run on it once for all of them."""

    runnable: RunnableTower
    batch: NamedBatch
    runner: PackageRunner | None = None  # None for checks of programs, which need no package

    @cached_property
    def sizes(self) -> dict[str, int]:
        """The size of each dynamic dim."""
        return input_sizes(self.runnable.tower.plan, self.batch.inputs)

    @cached_property
    def expected(self) -> dict[str, Tensor]:
        """The outputs of eager."""
        return self.runnable.run_eager(self.batch.inputs)

    @cached_property
    def outputs(self) -> dict[str, Tensor] | Refused:
        """The outputs of the packages, or their refusal of the inputs."""
        try:
            return self.run_packages()
        except Refused as refusal:
            return refusal

    def run_packages(self) -> dict[str, Tensor]:
        """Run the packages once more; raises as `PackageRunner.run` does."""
        return self.running.run(self.batch.inputs)

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

    def __init__(self, runnable: RunnableTower) -> None:
        self.runnable = runnable

    @abstractmethod
    def select(self, cases: Cases) -> Sequence[NamedBatch]:
        """Return the cases that the check applies to."""

    def select_for_gate(self, cases: Cases) -> Sequence[NamedBatch]:
        """Return the cases that the gate runs it on: a few of those it applies to, where it takes long."""
        return self.select(cases)

    def prepare(self, cases: Cases) -> None:
        """Compute from all cases what `run` needs in each of them; called once, before packages run."""
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
