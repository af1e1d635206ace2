"""The gate: a package is held against eager at many sizes, and only then may be published."""

import statistics
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import torch
from torch import Tensor
from torch.export import ExportedProgram

from exporter.aoti.out_of_memory import as_out_of_memory
from exporter.data.batch import NamedBatch
from exporter.dims.torch_dims import input_sizes
from exporter.errors import OutOfMemory, PackageCrashed, PackageUnsteady, VerificationFailed
from exporter.manifest import CaseKind, CaseReport, Latency, VerificationReport
from exporter.spec import Pass
from exporter.stages import Progress
from exporter.towers.lookup import LookUp
from exporter.towers.tower import Tower
from exporter.verify.fp32 import AgainstFp32
from exporter.verify.nodes import require_promises_kept
from exporter.verify.numerics import compare, compare_runs, scales_of, tolerance_of
from exporter.verify.reload import Link
from exporter.verify.runner import CALL_LIMIT_S, PackageRunner, Refused, RunnerProcess

_RUN_BY_NODE = ("batch_1", "batch_7", "empty_among_others")
_STEADY = 0.1  # of the tolerance: how far two runs may differ; on one CPU thread they do not at all
_ALWAYS_TIMED = "batch_32"
_TIMED_REPEATS = 20  # at most
_TIMED_S = 0.25  # for the repeats of one size, each by eager and by the package


class Gate:
    """Verifies one tower's package, or chain of packages, in a fresh process; see `verify`."""

    def __init__(  # noqa: PLR0913  what is verified, against what, and how it is run: all by name
        self,
        tower: Tower,
        chain: Sequence[Link],
        *,
        op_libraries: tuple[str, ...],
        scratch: Path,
        device: torch.device,
        passes: Iterable[Pass] = (),
        programs: Sequence[ExportedProgram] = (),
        lookup: LookUp | None = None,
        fp32: AgainstFp32 | None = None,
        call_limit_s: float = CALL_LIMIT_S,
        ahead: RunnerProcess | None = None,
    ) -> None:
        """Prepare to hold `chain`, what was compiled of `programs` after `passes`, against `tower`.

        A `lookup` makes the chain's inputs of the tower's, where no package does. With `fp32`, outputs are
        also held against the model as trained. Loading the chain, and each call of it, may take
        `call_limit_s`, in the process `ahead` if that was started before.
        """
        self._tower = tower
        self._chain = chain
        self._op_libraries = op_libraries
        self._scratch = scratch
        self._device = device
        self._tolerance = tolerance_of(passes, tower.config.options)
        self._programs = programs
        self._lookup = lookup
        self._fp32 = fp32
        self._call_limit_s = call_limit_s
        self._ahead = ahead
        self._usual: dict[str, float] = {}  # the scale of each output in the largest ordinary batch

    def verify(
        self, agreeing: Iterable[NamedBatch], contradicting: Iterable[NamedBatch], progress: Progress
    ) -> VerificationReport:
        """Package and eager must agree on `agreeing`; `contradicting` inputs must be refused.

        Raises:
            VerificationFailed: naming the case, its sizes, the output and the difference.
            OutOfMemory: naming the case.
            PrecisionLost: the package does what eager does, too far from the model in fp32.
        """
        cases, refusals = list(agreeing), list(contradicting)
        by_node = _run_by_node(cases) if self._programs else []
        for batch in by_node:
            progress(0.0, f"{batch.name}: node by node")
            with _memory_named(batch, f"{self._tower.title}: {batch.name}, node by node"):
                require_promises_kept(
                    self._programs, self.entering(batch), tower=self._tower.title, case=batch.name
                )
        self.learn_scales(cases)
        total, timed = len(cases) + len(refusals), _timed(cases)
        reports, latency = [], []
        with ExitStack() as running:
            runner = running.enter_context(self.runner())
            for done, batch in enumerate(cases):
                progress(done / total, f"{batch.name}: package against eager")
                with self._named(batch):
                    reports.append(self.agrees(runner, batch))
                    if batch.name in timed:
                        self._require_steady(runner, batch)
                        latency.append(self._latency(runner, batch))
            for done, batch in enumerate(refusals, start=len(cases)):
                progress(done / total, f"{batch.name}: must be refused")
                try:
                    with _memory_named(batch, f"{self._tower.title}: {batch.name}"):
                        reports.append(self.refuses(runner, batch))
                except PackageCrashed as crash:  # a package without checks may read past its inputs
                    reports.append(not_refused(batch, crash.message))
                    runner = running.enter_context(self.runner())
        failed = [report for report in reports if not report.passed]
        if failed:
            raise VerificationFailed(
                f"{self._tower.title}: {len(failed)} of {len(reports)} cases failed; first: "
                f"{_describe(failed[0], self._tolerance)}",
                hint="nothing of this tower was published; report the case with the pipeline config",
                where=failed[0].name,
            )
        return VerificationReport(
            tolerance=self._tolerance,
            largest_difference=max(report.largest_difference or 0.0 for report in reports),
            cases=tuple(reports),
            latency=tuple(latency),
            fp32=self._fp32.report(title=self._tower.title) if self._fp32 else None,
            run_by_node=tuple(batch.name for batch in by_node),
        )

    def learn_scales(self, cases: Sequence[NamedBatch]) -> None:
        """Keep the scale of each output in the largest ordinary batch: what small ones are held against."""
        if ordinary := _ordinary(cases):
            self._usual = scales_of(self.eager(ordinary[-1].inputs))
            if self._fp32:
                self._fp32.learn_scales(ordinary[-1])

    @property
    def tolerance(self) -> float:
        """The allowed difference, as a fraction of an output's scale."""
        return self._tolerance

    def entering(self, batch: NamedBatch) -> dict[str, Tensor]:
        """What the chain is given for a case."""
        inputs = {name: value.to(self._device) for name, value in batch.inputs.items()}
        return inputs if self._lookup is None else self._lookup(inputs)

    def eager(self, inputs: dict[str, Tensor]) -> dict[str, Tensor]:
        """The tower's outputs, computed as they are checked against."""
        with torch.no_grad():
            on_device = {name: value.to(self._device) for name, value in inputs.items()}
            outputs: dict[str, Tensor] = self._tower.module(on_device)
        return {name: value.cpu() for name, value in outputs.items()}

    def runner(self) -> PackageRunner:
        """The package in a fresh process, once entered."""
        return PackageRunner(
            self._chain,
            op_libraries=self._op_libraries,
            scratch=self._scratch,
            device=str(self._device),
            tf32=self._tower.config.options.tf32,
            threads=torch.get_num_threads(),
            lookup=self._lookup,
            limit_s=self._call_limit_s,
            ahead=self._ahead,
        )

    def agrees(self, runner: PackageRunner, batch: NamedBatch) -> CaseReport:
        """One case: every output of the package against eager's, elementwise."""
        sizes = input_sizes(self._tower.plan, batch.inputs)
        expected = self.eager(batch.inputs)
        try:
            outputs = runner.run(batch.inputs)
        except Refused as refusal:
            return CaseReport(
                name=batch.name, kind=CaseKind.AGREES, sizes=sizes, passed=False, detail=str(refusal)
            )
        difference = compare(expected, outputs, usual=self._usual)
        if self._fp32:
            self._fp32.add(batch, outputs)
        finite = not difference.problem
        return CaseReport(
            name=batch.name,
            kind=CaseKind.AGREES,
            sizes=sizes,
            passed=difference.within(self._tolerance),
            largest_difference=difference.largest if finite else None,
            scale=difference.scale if finite else None,
            output=difference.output,
            detail=difference.problem or batch.note,
        )

    def moved(self, runner: PackageRunner, batch: NamedBatch) -> str:
        """How far two runs on the same inputs are apart, in words; nothing if they agree.

        What moves between two runs is no rounding. Inputs that are refused are another case's failure.
        """
        try:
            between = compare_runs(runner.run(batch.inputs), runner.run(batch.inputs))
        except Refused:
            return ""
        if between.within(self._tolerance * _STEADY):
            return ""
        if between.problem:
            return f"{between.output or 'outputs'}: {between.problem} in one of two runs on the same inputs"
        return (
            f"{between.output} differs by {between.largest:.3g} at scale {between.scale:.3g} between two "
            "runs on the same inputs"
        )

    def _require_steady(self, runner: PackageRunner, batch: NamedBatch) -> None:
        """PackageUnsteady, naming the case, the output and the difference."""
        if moved := self.moved(runner, batch):
            raise PackageUnsteady(f"{self._tower.title}: {batch.name}: {moved}", where=batch.name)

    @contextmanager
    def _named(self, batch: NamedBatch) -> Iterator[None]:
        """A crash inside names the case, so that it is the one that is made small."""
        sizes = _sizes_text(input_sizes(self._tower.plan, batch.inputs))
        at = f"{self._tower.title}: {batch.name} ({sizes})"
        try:
            with _memory_named(batch, at):
                yield
        except PackageCrashed as crash:
            raise PackageCrashed(f"{at}: {crash.message}", where=batch.name) from crash

    def refuses(self, runner: PackageRunner, batch: NamedBatch) -> CaseReport:
        """One case of inputs that contradict each other."""
        try:
            runner.run(batch.inputs)
        except Refused as refusal:
            return CaseReport(
                name=batch.name, kind=CaseKind.REFUSES, sizes={}, passed=True, detail=str(refusal)
            )
        return not_refused(batch, "was computed instead of refused")

    def _latency(self, runner: PackageRunner, batch: NamedBatch) -> Latency:
        times_ms: list[float] = []
        # Where the package finds its inputs as well.
        inputs = {name: value.to(self._device) for name, value in batch.inputs.items()}
        while len(times_ms) < _TIMED_REPEATS and sum(times_ms) < _TIMED_S * 1e3:
            begun = time.perf_counter()
            self.eager(inputs)
            times_ms.append((time.perf_counter() - begun) * 1e3)
        _, compiled_ms = runner.time(batch.inputs, repeats=len(times_ms))
        rows = input_sizes(self._tower.plan, batch.inputs)["batch"]
        assert compiled_ms is not None
        return Latency(batch=rows, eager_ms=statistics.median(times_ms), compiled_ms=compiled_ms)


@contextmanager
def _memory_named(batch: NamedBatch, at: str) -> Iterator[None]:
    """That memory ran out inside, for eager or for the package, names the case, and is no refusal of it."""
    try:
        yield
    except Exception as error:
        memory = as_out_of_memory(error)
        if memory is None:
            raise
        raise OutOfMemory(f"{at}: {memory.message}", where=batch.name) from error


def _run_by_node(cases: Sequence[NamedBatch]) -> list[NamedBatch]:
    """The cases that the program itself is run on, none of them of the size that was traced."""
    return [case for case in cases if case.name in _RUN_BY_NODE]


def _ordinary(cases: Sequence[NamedBatch]) -> list[NamedBatch]:
    """Batches of rows as they are, by size."""
    return [case for case in cases if case.name.startswith("batch_")]


def _timed(cases: Sequence[NamedBatch]) -> frozenset[str]:
    """The cases that are timed: the smallest, a usual and the largest size of ordinary rows."""
    sizes = [case.name for case in _ordinary(cases)]
    return frozenset({*sizes[:1], _ALWAYS_TIMED, *sizes[-1:]})


def not_refused(batch: NamedBatch, detail: str) -> CaseReport:
    return CaseReport(name=batch.name, kind=CaseKind.REFUSES, sizes={}, passed=False, detail=detail)


def _describe(report: CaseReport, tolerance: float) -> str:
    at = _sizes_text(report.sizes)
    if report.largest_difference is None:
        return f"{report.name} ({at}): {report.detail}"
    return (
        f"{report.name} ({at}): {report.output} differs by {report.largest_difference:.3g} "
        f"at scale {report.scale:.3g}, allowed {tolerance:g} of it"
    )


def _sizes_text(sizes: Mapping[str, int]) -> str:
    return ", ".join(f"{name}={size}" for name, size in sizes.items())
