"""What every error carries: advice, and in its report what is too long for a sentence."""

import errno
import os

import pytest
from safetensors import SafetensorError

from exporter.checkpoint.errors import WeightsNotFinite
from exporter.errors import CheckpointMismatch, InvalidRows
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


@pytest.mark.parametrize("kind", [OSError, SafetensorError])
def test_a_full_disk_is_no_fault_of_slipways(kind: type[Exception]) -> None:
    failure = Failure.of(kind(f"Error while serializing: {os.strerror(errno.ENOSPC)} (os error 28)"))
    assert (failure.code, failure.retryable) == ("storage_error", True)
    assert "make room" in failure.hint


def test_an_unforeseen_error_says_what_to_do() -> None:
    assert "report it" in Failure.of(ZeroDivisionError("x")).hint
