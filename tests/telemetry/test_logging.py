"""Log lines in one format, whoever wrote them."""

import json
import logging
from collections.abc import Iterator

import pytest
from structlog.contextvars import bound_contextvars

from telemetry.choices import LogFormat, LogLevel
from telemetry.logging import configure_logging, logger


@pytest.fixture(autouse=True)
def _restored() -> Iterator[None]:
    root = logging.getLogger()
    before = root.handlers, root.level
    yield
    root.handlers, root.level = list(before[0]), before[1]


def test_json_lines_hold_the_event_its_fields_and_the_bound_job(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging(LogFormat.JSON, LogLevel.INFO)
    with bound_contextvars(job_id="j1"):
        logger("a").info("stage_finished", seconds=2.5)
    line = json.loads(capsys.readouterr().err)
    assert (line["event"], line["seconds"], line["job_id"], line["level"]) == (
        "stage_finished",
        2.5,
        "j1",
        "info",
    )


def test_the_standard_librarys_messages_look_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging(LogFormat.JSON, LogLevel.INFO)
    logging.getLogger("kombu").warning("lost %s", "it", extra={"job_id": "j2"})
    line = json.loads(capsys.readouterr().err)
    assert (line["event"], line["job_id"], line["logger"]) == ("lost it", "j2", "kombu")


def test_less_important_messages_are_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging(LogFormat.CONSOLE, LogLevel.WARNING)
    logger("b").info("quiet")
    logger("b").warning("loud")
    told = capsys.readouterr().err
    assert "loud" in told and "quiet" not in told
