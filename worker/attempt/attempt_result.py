"""The ways an attempt can end, and how a result is edited before it is recorded."""

from collections.abc import Sequence
from dataclasses import dataclass

from exporter.outcome import ExportOutcome, Failure
from exporter.redaction import redact_and_escape
from exporter.reports.release_report import ReleaseReport


@dataclass(frozen=True)
class Finished:
    """The ranks exited by themselves and reported an outcome."""

    outcome: ExportOutcome


@dataclass(frozen=True)
class NoOutcome:
    """The attempt ended without an outcome: it crashed, timed out or could not start."""

    failure: Failure


@dataclass(frozen=True)
class Cancelled:
    """The caller asked to stop the job."""


@dataclass(frozen=True)
class HandedBack:
    """The worker is shutting down, and gives the job back to the queue."""


AttemptResult = Finished | NoOutcome | Cancelled | HandedBack


def redact_failures(secrets: Sequence[str], result: AttemptResult) -> AttemptResult:
    """Return the result with every occurrence of `secrets` removed from its failures and its verdict."""

    def clean(failure: Failure | None) -> Failure | None:
        if failure is None:
            return None
        texts = failure.model_dump(include={"message", "hint", "where", "report"})
        return failure.model_copy(
            update={name: redact_and_escape(text, secrets) for name, text in texts.items()}
        )

    match result:
        case Finished(outcome):
            towers = tuple(
                each.model_copy(update={"failure": clean(each.failure)}) for each in outcome.towers
            )
            release = outcome.release and _redact_report(outcome.release, secrets)
            edited = {"failure": clean(outcome.failure), "towers": towers, "release": release}
            return Finished(outcome.model_copy(update=edited))
        case NoOutcome(failure):
            return NoOutcome(clean(failure) or failure)
        case _:
            return result


def _redact_report(report: ReleaseReport, secrets: Sequence[str]) -> ReleaseReport:
    findings = tuple(
        each.model_copy(update={"detail": redact_and_escape(each.detail, secrets)})
        for each in report.findings
    )
    failure = redact_and_escape(report.failure, secrets)
    return report.model_copy(update={"findings": findings, "failure": failure})


def forbid_retries(result: AttemptResult) -> AttemptResult:
    """Return the result with every failure marked as final, so that no further attempt follows."""

    def last(failure: Failure | None) -> Failure | None:
        return failure and failure.model_copy(update={"retryable": False})

    match result:
        case Finished(outcome):
            towers = tuple(each.model_copy(update={"failure": last(each.failure)}) for each in outcome.towers)
            return Finished(outcome.model_copy(update={"failure": last(outcome.failure), "towers": towers}))
        case NoOutcome(failure):
            return NoOutcome(failure.model_copy(update={"retryable": False}))
        case _:
            return result
