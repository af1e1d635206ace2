import pytest
from pydantic import ValidationError

from jobs.hooks.triggers import EventMatch
from tests.jobs.hooks.factories import make_training_event, make_trigger


@pytest.mark.parametrize(
    "when",
    [
        {},
        {"type": "com.example.training.*"},
        {"source": "/trainer/*", "model": "hstu-*"},
        {"status": ("SUCCEEDED", "completed")},
        {"status": None},
    ],
)
def test_an_event_fits(when: dict[str, object]) -> None:
    assert make_trigger(**when).find_misfits(make_training_event()) == ()


@pytest.mark.parametrize(
    ("when", "named"),
    [
        ({"type": "com.example.evaluation"}, "type"),
        ({"source": "/other/*"}, "source"),
        ({"model": "dlrm-*"}, "data.model"),
        ({"status": ("completed",)}, "data.status"),
    ],
)
def test_what_does_not_fit_is_named(when: dict[str, object], named: str) -> None:
    (misfit,) = make_trigger(**when).find_misfits(make_training_event())
    assert misfit.startswith(named)


@pytest.mark.parametrize("status", ["failed", "FAILED", "Cancelled", "error"])
@pytest.mark.parametrize("wanted", [None, ("succeeded",)])
def test_a_failed_training_job_starts_nothing(status: str, wanted: tuple[str, ...] | None) -> None:
    event = make_training_event(status=status)
    assert "a failed training job" in make_trigger(status=wanted).find_misfits(event)[0]


def test_no_rule_can_ask_for_failed_training_jobs() -> None:
    with pytest.raises(ValidationError, match="starts nothing"):
        EventMatch(status=("failed",))


def test_an_event_without_status_fits_only_a_rule_that_takes_any() -> None:
    event = make_training_event(status=None)
    assert make_trigger(status=None).find_misfits(event) == ()
    assert make_trigger().find_misfits(event) != ()


def test_a_disabled_trigger_takes_nothing() -> None:
    disabled = make_trigger().model_copy(update={"enabled": False})
    assert disabled.find_misfits(make_training_event()) == ("the trigger is disabled",)
