"""The verdict of the release gate on a published release, measure by measure."""

from collections.abc import Mapping
from enum import StrEnum

from exporter.frozen import Frozen
from exporter.reports.input_statistics import InputStatistics
from exporter.spec import TowerName

REPORT_NAME = "release.json"  # beside the manifest


class ReleasedArtifacts(Frozen):
    """The artifacts of one release, as far as they are needed to run it."""

    job_id: str
    towers: Mapping[TowerName, str]  # tower -> URI of the artifact that holds its package


class Verdict(StrEnum):
    """The result of one measure."""

    PASSED = "passed"
    FAILED = "failed"
    TOO_FEW = "too_few"  # too few rows, groups or calls to tell, or none that both releases take
    NO_BASELINE = "no_baseline"  # measured, and nothing to compare it with


class Finding(Frozen):
    """One measure of a release, beside the baseline's."""

    measure: str  # "auc", "ndcg@10", "latency", "size", "nulls", ...
    subject: str = ""  # what it is of: an output with its label, a tower, a feature, a table
    value: float | None = None
    baseline: float | None = None
    allowed: float | None = None  # the bound that the value, or its change, was held against
    rows: int | None = None  # number of rows, groups or calls that it was measured on
    verdict: Verdict
    detail: str = ""  # one sentence for people


class ReleaseReport(Frozen):
    """The content of release.json: whether a release may be promoted, and the figures behind that."""

    job_id: str
    baseline: str | None  # id of the job behind the baseline; None: there was none
    # Every measure passed or had no baseline; with the gate's bless_untold also what is too few to tell.
    blessed: bool
    findings: tuple[Finding, ...]
    failure: str = ""  # why the release could not be judged, where that is so; it is not blessed then
    rows: int  # held-out rows that were scored
    seconds: float
    statistics: InputStatistics | None = None  # of the rows, for the drift of the next release's
