"""The verdict of the release gate on an artifact, as `slipway inspect` shows it."""

from collections.abc import Iterator

from rich.table import Table

from exporter.redaction import escape_deceptive
from exporter.reports.release_report import Finding, ReleaseReport
from service.client.tables import table_of


def describe_verdict(
    report: ReleaseReport, *, signed_manifest: bool, full: bool = True
) -> Iterator[Table | str]:
    """Describe whether the release was blessed when it was published; in full, by which figures."""
    blessed = "blessed" if report.blessed and not report.failure else "not blessed"
    against = f"against job {report.baseline}" if report.baseline else "without a release to compare it with"
    yield f"release {blessed}, judged {escape_deceptive(against)} on {report.rows:,} rows"
    if report.failure:
        yield f"release not judged: {escape_deceptive(report.failure)}"
    if signed_manifest:
        yield "release.json is not signed: the record of the job is what counts when it is promoted"
    if report.findings and full:
        yield _findings(report.findings)


def _findings(findings: tuple[Finding, ...]) -> Table:
    columns = ("measure", "of", "value", "baseline", "allowed", "rows", "verdict", "why")
    table = table_of(*columns, title="release")
    for each in findings:
        figures = (_figure(value) for value in (each.value, each.baseline, each.allowed))
        rows = "" if each.rows is None else f"{each.rows:,}"
        verdict = each.verdict.replace("_", " ")
        texts = (escape_deceptive(text) for text in (each.measure, each.subject))
        table.add_row(*texts, *figures, rows, verdict, escape_deceptive(each.detail))
    return table


def _figure(value: float | None) -> str:
    return "" if value is None else f"{value:.4g}"
