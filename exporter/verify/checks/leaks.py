"""Check of leaks: a process that calls the packages again and again does not hold more after every call."""

from collections.abc import Sequence

from exporter.data.rows import NamedBatch
from exporter.errors import PackageUnsteady
from exporter.verify.cases import Cases
from exporter.verify.checks.check import CheckResult, Trial
from exporter.verify.checks.observing import ObservingCheck
from exporter.verify.errors import PackageLeaks

# Growth per call that is not taken for a leak; packages without one have none at all.
_ALLOWED = {"bytes of memory": 16.0}


class Leaks(ObservingCheck):
    """Allocated memory, Python objects, open files and threads are counted between calls."""

    name = "leaks"
    title = "nothing kept of calls"
    error = PackageLeaks
    observation = "growth"

    def select(self, cases: Cases) -> Sequence[NamedBatch]:
        """Return the smallest case, as many calls of it take little time."""
        return (cases.ordinary or cases.must_agree)[:1]

    def run(self, trial: Trial) -> CheckResult:
        """Call many times; the growth that counts is the least of several intervals."""
        observed = self.observe(trial)
        if observed is None or observed.growth is None:
            return CheckResult(sizes=trial.sizes)
        growth = observed.growth
        if growth.moved:
            place, case = self.describe_place(trial), trial.batch.name
            said = f"{growth.moved[0]} is not the same after {growth.calls} calls with the same inputs"
            error = PackageUnsteady(f"{place}: {said}", where=case)
            return CheckResult(passed=False, sizes=trial.sizes, detail=said, error=error)
        for resource, more in growth.per_call.items():
            if is_leak(resource, more):
                kept = f"each call keeps {more:,.4g} {resource}, in all of {growth.calls} calls"
                return CheckResult(passed=False, sizes=trial.sizes, detail=kept)
        return CheckResult(sizes=trial.sizes, detail=f"{growth.calls} calls")


def is_leak(resource: str, per_call: float) -> bool:
    """Return whether a growth of a resource with every call is more than measuring it costs."""
    return per_call > _ALLOWED.get(resource, 0.0)
