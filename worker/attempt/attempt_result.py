"""How an attempt ended, and what is done about it before it is recorded."""

from collections.abc import Sequence
from dataclasses import dataclass

from exporter.outcome import ExportOutcome, Failure
from exporter.redaction import shown


@dataclass(frozen=True)
class Finished:
    """The ranks ended by themselves and told the outcome."""

    outcome: ExportOutcome


@dataclass(frozen=True)
class NoOutcome:
    """The attempt ended without an outcome."""

    failure: Failure


@dataclass(frozen=True)
class Cancelled:
    """The caller asked to stop."""


@dataclass(frozen=True)
class HandedBack:
    """This worker is shutting down."""


AttemptResult = Finished | NoOutcome | Cancelled | HandedBack


def redact_failures(secrets: Sequence[str], ending: AttemptResult) -> AttemptResult:
    """The same ending, whose failures do not hold these, whoever wrote them."""

    def clean(failure: Failure | None) -> Failure | None:
        if failure is None:
            return None
        texts = failure.model_dump(include={"message", "hint", "where", "report"})
        return failure.model_copy(update={name: shown(text, secrets) for name, text in texts.items()})

    match ending:
        case Finished(outcome):
            towers = tuple(
                each.model_copy(update={"failure": clean(each.failure)}) for each in outcome.towers
            )
            return Finished(outcome.model_copy(update={"failure": clean(outcome.failure), "towers": towers}))
        case NoOutcome(failure):
            return NoOutcome(clean(failure) or failure)
        case _:
            return ending


def forbid_retries(ending: AttemptResult) -> AttemptResult:
    """The same ending, after which nobody tries again."""

    def last(failure: Failure | None) -> Failure | None:
        return failure and failure.model_copy(update={"retryable": False})

    match ending:
        case Finished(outcome):
            towers = tuple(each.model_copy(update={"failure": last(each.failure)}) for each in outcome.towers)
            return Finished(outcome.model_copy(update={"failure": last(outcome.failure), "towers": towers}))
        case NoOutcome(failure):
            return NoOutcome(failure.model_copy(update={"retryable": False}))
        case _:
            return ending
