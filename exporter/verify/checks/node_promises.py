"""Check of the programs: every node gives the sizes, strides, dtype and device that tracing promised."""

from collections.abc import Sequence

from exporter.data.rows import NamedBatch
from exporter.errors import PromiseBroken
from exporter.manifest import VerificationReport
from exporter.verify.cases import Cases
from exporter.verify.checks.check import Check, CheckResult, Trial
from exporter.verify.nodes import CheckedProgram, find_broken_promise
from exporter.verify.runnable_tower import RunnableTower

_GATE_CASES = ("batch_1", "batch_7", "empty_among_others")  # none of them of the size that was traced


class NodePromises(Check):
    """Each program is run node by node, on the outputs of the one before it."""

    name = "nodes"
    title = "node by node, as traced"
    activity = "node by node"
    error = PromiseBroken
    error_names_case = False  # `where` is the line of the model's code
    needs_packages = False

    def __init__(self, runnable: RunnableTower) -> None:
        super().__init__(runnable)
        self._kept: list[str] = []
        self._programs = [CheckedProgram(program) for program in runnable.programs]

    def select(self, cases: Cases) -> Sequence[NamedBatch]:
        """Return all cases that must agree; none where code was reused and nothing was traced."""
        return cases.must_agree if self.runnable.programs else ()

    def select_for_gate(self, cases: Cases) -> Sequence[NamedBatch]:
        """Return a few of the selected cases."""
        return [case for case in self.select(cases) if case.name in _GATE_CASES]

    def run(self, trial: Trial) -> CheckResult:
        """Run the programs on one case, up to the first node that breaks its promise."""
        programs, case = self.runnable.programs, trial.batch.name
        broken = find_broken_promise(self._programs, self.runnable.first_inputs(trial.batch.inputs))
        if broken is None:
            self._kept.append(case)
            nodes = sum(len(program.graph.nodes) for program in programs)
            return CheckResult(sizes=trial.sizes, detail=f"{nodes:,} node{'' if nodes == 1 else 's'}")
        error = PromiseBroken(f"{self.runnable.title}, {case}: {broken}", where=broken.place or case)
        error.case = case
        return CheckResult(passed=False, sizes=trial.sizes, detail=str(broken), error=error)

    def describe_place(self, trial: Trial) -> str:
        return f"{self.runnable.title}: {trial.batch.name}, {self.activity}"

    def conclude(self, report: VerificationReport) -> VerificationReport:
        """Name the cases in which all promises were kept."""
        return report.model_copy(update={"run_by_node": tuple(self._kept)})
