"""What every error carries: advice, and in its report what is too long for a sentence."""

from exporter.errors import CheckpointMismatch, InvalidRows, WeightsNotFinite
from exporter.outcome import Failure


def test_an_error_without_a_hint_gives_its_classes_advice() -> None:
    assert InvalidRows("x").hint == InvalidRows.advice != ""
    assert InvalidRows("x", hint="y").hint == "y"


def test_the_report_of_a_mismatch_holds_every_name() -> None:
    names = [f"tower.{number}" for number in range(9)]
    failure = Failure.of(CheckpointMismatch(missing=names, unexpected=["extra"], mismatched=[]))
    assert "tower.8" not in failure.message
    assert failure.report.splitlines() == [*(f"missing {name}" for name in names), "unexpected extra"]


def test_the_report_of_broken_weights_holds_every_name() -> None:
    error = WeightsNotFinite([f"tower.{number}" for number in range(9)])
    assert "tower.8" in error.report
    assert "9 weights" in error.message


def test_an_unforeseen_error_says_what_to_do() -> None:
    assert "report it" in Failure.of(ZeroDivisionError("x")).hint
