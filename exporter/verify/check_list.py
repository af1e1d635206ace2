"""The checks of a tower's packages, in the order in which they run on a case."""

from exporter.errors import PackageCrashed
from exporter.verify.checks.agreement import Agreement
from exporter.verify.checks.calls_at_once import CallsAtOnce
from exporter.verify.checks.check import Check
from exporter.verify.checks.fp32_distance import Fp32Distance
from exporter.verify.checks.handover import Handover
from exporter.verify.checks.interface import Interface
from exporter.verify.checks.latency import LatencyMeasurement
from exporter.verify.checks.leaks import Leaks
from exporter.verify.checks.node_promises import NodePromises
from exporter.verify.checks.numbers_of_rows import NumbersOfRows
from exporter.verify.checks.refusal import Refusal
from exporter.verify.checks.steadiness import Steadiness

CHECKS: tuple[type[Check], ...] = (
    NodePromises,
    Interface,
    Handover,
    Agreement,
    Fp32Distance,
    Steadiness,
    CallsAtOnce,
    Leaks,
    LatencyMeasurement,
    NumbersOfRows,
    Refusal,
)

# Codes of failures whose `where` is the verification case that failed.
CODES_NAMING_A_CASE = frozenset(
    {PackageCrashed.code, *(check.error.code for check in CHECKS if check.error_names_case)}
)
