"""Check of calls at once: the packages compute the same while another thread calls them."""

from exporter.errors import PackageCrashed
from exporter.verify.checks.check import CheckResult, Trial
from exporter.verify.checks.observing import ObservingCheck
from exporter.verify.checks.steadiness import describe_difference
from exporter.verify.errors import CallsMixed
from exporter.verify.numerics import compare_runs


class CallsAtOnce(ObservingCheck):
    """Two threads call at once, as threads of a server do; outputs are compared with those of calls alone."""

    name = "threads"
    title = "the same while other threads call"
    error = CallsMixed
    observation = "calls_at_once"

    def run(self, trial: Trial) -> CheckResult:
        """Call from two threads, and compare the outputs that differ most from those of calls alone."""
        try:
            observed = self.observe(trial)
        except PackageCrashed as crash:
            detail = f"{crash.message}, while two threads called at once"
            return CheckResult(passed=False, sizes=trial.sizes, detail=detail)
        if observed is None or observed.calls_at_once is None:
            return CheckResult(sizes=trial.sizes)
        counts = observed.calls_at_once
        for alone, differing in observed.differing:
            change = describe_difference(compare_runs(alone, differing), self.runnable.tolerance)
            if change:
                share = f"{counts.differing} of {counts.calls} calls of two threads"
                detail = f"{change} from a call alone, in {share}"
                return CheckResult(passed=False, sizes=trial.sizes, detail=detail)
        return CheckResult(sizes=trial.sizes, detail=f"{counts.calls} calls")
