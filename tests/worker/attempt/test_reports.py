"""A rank reports its stages."""

import io

import pytest
from structlog.contextvars import bound_contextvars, get_contextvars

from exporter.stages import Stage, StageClock, StageEvent
from telemetry.tracing import Tracing
from worker.attempt.reports import make_reporter


def test_events_are_written_as_lines_and_what_is_logged_meanwhile_names_tower_and_stage(
    capsys: pytest.CaptureFixture[str],
) -> None:
    events = io.StringIO()
    clock = StageClock("user", make_reporter(events, Tracing(), None))
    with bound_contextvars(tower="", stage=""), clock.stage(Stage.ROWS):
        assert get_contextvars() == {"tower": "user", "stage": "rows"}
    kinds = [StageEvent.model_validate_json(line).kind for line in events.getvalue().splitlines()]
    assert kinds == ["started", "finished"]
    assert capsys.readouterr().err.startswith("slipway-stage user rows\n")


def test_a_stage_that_raises_is_told_as_failed_with_the_errors_class() -> None:
    told: list[StageEvent] = []
    with bound_contextvars(), pytest.raises(KeyError), StageClock("user", told.append).stage(Stage.ROWS):
        raise KeyError("x")
    assert [(event.kind, event.detail) for event in told] == [("started", ""), ("failed", "KeyError")]
