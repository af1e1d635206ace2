"""Check of the handover: what the sparse package hands to the dense one is eager's, name by name."""

from collections.abc import Iterator, Mapping, Sequence

from torch import Tensor

from exporter.data.rows import NamedBatch
from exporter.verify.cases import Cases
from exporter.verify.checks.check import CheckResult, Trial
from exporter.verify.checks.observing import ObservingCheck
from exporter.verify.errors import TensorsExchanged
from exporter.verify.numerics import compare


class Handover(ObservingCheck):
    """Packages are run one by one, and what each returns is compared with the eager part it was made from."""

    name = "handover"
    title = "tensors between the packages"
    error = TensorsExchanged
    observation = "steps"

    def select(self, cases: Cases) -> Sequence[NamedBatch]:
        """Return one case of few rows, where there are two packages."""
        return super().select(cases) if len(self.runnable.parts) > 1 else ()

    def run(self, trial: Trial) -> CheckResult:
        """Compare the tensors behind each package but the last, whose outputs other checks compare."""
        observed = self.observe(trial)
        if observed is None:
            return CheckResult(sizes=trial.sizes)
        parts = list(self.runnable.run_parts(trial.batch.inputs))[:-1]
        for link, expected, found in zip(self.runnable.chain, parts, observed.steps, strict=False):
            if problem := next(_problems(expected, found, self.runnable.tolerance), ""):
                detail = f"{link.package.name}: {problem}"
                return CheckResult(passed=False, sizes=trial.sizes, detail=detail)
        return CheckResult(sizes=trial.sizes)


def _problems(expected: Mapping[str, Tensor], found: Mapping[str, Tensor], tolerance: float) -> Iterator[str]:
    if set(expected) != set(found):
        yield f"it returns {', '.join(sorted(found))}, and eager {', '.join(sorted(expected))}"
        return
    for name, tensor in found.items():
        if _agrees(expected[name], tensor, tolerance):
            continue
        others = [each for each in expected if each != name and _agrees(expected[each], tensor, tolerance)]
        holds = f"holds what eager returns as {others[0]}" if others else "is not what eager returns"
        yield f"its tensor {name}, of shape {list(tensor.shape)}, {holds}"


def _agrees(expected: Tensor, found: Tensor, tolerance: float) -> bool:
    return compare({"": expected}, {"": found}).within(tolerance)
