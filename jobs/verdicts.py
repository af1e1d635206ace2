"""The verdict of the release gate as records and answers hold it, bounded: lists read many records."""

from collections.abc import Iterable
from typing import Self

from pydantic import Field

from exporter.redaction import redact_and_escape, shorten
from exporter.reports.release_report import Finding, ReleaseReport, Verdict
from exporter.spec import Frozen, Target

MOST_FINDINGS = 40  # of one target; release.json has all of them
_MOST_IN_SENTENCE = 10
_LONGEST_NAME, _LONGEST_DETAIL, _LONGEST_FAILURE = 100, 300, 1000  # characters

_SETTLED = frozenset({Verdict.PASSED, Verdict.NO_BASELINE})


class ReleaseVerdict(Frozen):
    """The verdict of the release gate on one target's packages, with the figures behind it."""

    target: Target | None = Field(default=None, description="Null if the request names no targets.")
    blessed: bool = Field(description="Whether the release may be promoted without `force`.")
    baseline: str | None = Field(description="Job of the release that it was compared with; null: none.")
    findings: tuple[Finding, ...] = Field(description="What was measured; what did not pass comes first.")
    left_out: int = Field(default=0, description="Number of further findings, which release.json holds.")
    failure: str = Field(default="", description="Why the release could not be judged.")
    rows: int = Field(default=0, description="Held-out rows that were scored.")
    report_sha256: str | None = Field(
        default=None, description="Digest of release.json beside the manifest; null: there is none."
    )

    @classmethod
    def of(cls, report: ReleaseReport, target: Target | None, sha256: str | None) -> Self:
        """Return the verdict that a report holds, with texts of bounded lengths."""
        ordered = sorted(report.findings, key=lambda finding: finding.verdict in _SETTLED)
        return cls(
            target=target,
            blessed=report.blessed and not report.failure,
            baseline=None if report.baseline is None else _fit(report.baseline, _LONGEST_NAME),
            findings=tuple(map(_bound, ordered[:MOST_FINDINGS])),
            left_out=max(0, len(ordered) - MOST_FINDINGS),
            failure=_fit(report.failure, _LONGEST_FAILURE),
            rows=report.rows,
            report_sha256=sha256,
        )

    @classmethod
    def unjudged(cls, target: Target | None, why: str) -> Self:
        """Return the verdict on what was published and could not be judged: it is not blessed."""
        return cls(target=target, blessed=False, baseline=None, findings=(), failure=why)

    @property
    def objections(self) -> tuple[Finding, ...]:
        """The findings that stand against the release."""
        return tuple(finding for finding in self.findings if finding.verdict not in _SETTLED)

    def only_objections(self) -> Self:
        """Return this verdict without the findings that passed, for messages."""
        return self.model_copy(update={"findings": self.objections})


def is_blessed(verdicts: Iterable[ReleaseVerdict], targets: Iterable[Target | None] | None) -> bool:
    """Return whether every target is blessed; `targets` is None if the request names none."""
    found = {verdict.target: verdict.blessed for verdict in verdicts}
    return all(found.get(target, False) for target in targets or (None,))


def describe_objections(verdicts: Iterable[ReleaseVerdict]) -> str:
    """Return the figures that stand against a release as one sentence; empty if there are none."""
    reasons = [
        f"{verdict.target}: {reason}" if verdict.target else reason
        for verdict in verdicts
        if not verdict.blessed
        for reason in [
            *filter(None, [verdict.failure]),
            *(describe_finding(finding) for finding in verdict.objections),
        ]
    ]
    shown = "; ".join(reasons[:_MOST_IN_SENTENCE])
    more = len(reasons) - _MOST_IN_SENTENCE
    return f"{shown}; and {more} more" if more > 0 else shown


def describe_finding(finding: Finding) -> str:
    """Return a finding in words: the measure with its subject, the verdict, and the figures or the reason."""
    figures = (
        ("", finding.value),
        ("baseline ", finding.baseline),
        ("allowed ", finding.allowed),
    )
    shown = ", ".join(f"{name}{value:.4g}" for name, value in figures if value is not None)
    of = f" of {finding.subject}" if finding.subject else ""
    rows = f" on {finding.rows:,} rows" if finding.verdict is Verdict.TOO_FEW and finding.rows else ""
    why = f" ({shown})" if shown else f": {finding.detail}" if finding.detail else ""
    return f"{finding.measure}{of} {finding.verdict.replace('_', ' ')}{rows}{why}"


def _bound(finding: Finding) -> Finding:
    texts = {
        "measure": _fit(finding.measure, _LONGEST_NAME),
        "subject": _fit(finding.subject, _LONGEST_NAME),
        "detail": _fit(finding.detail, _LONGEST_DETAIL),
    }
    return finding.model_copy(update=texts)


def _fit(text: str, most: int) -> str:
    """Return text of an attempt, which repeats names of strangers, as people may see it."""
    return shorten(redact_and_escape(text), most)
