"""Lines of an attempt's log, and where they belong."""

from datetime import timedelta
from pathlib import Path

import pytest

from exporter.spec import TowerName
from exporter.stages import Stage
from jobs.diagnostics.logs import LogPart, MemoryLogs
from jobs.ids import new_job_id
from tests.jobs.factories import NOW, make_event
from worker.attempt.logs import LogTail, format_event, format_stage_mark

JOB = new_job_id()


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "log.txt"


@pytest.fixture
def logs() -> MemoryLogs:
    return MemoryLogs()


@pytest.fixture
def tail(log: Path, logs: MemoryLogs) -> LogTail:
    return LogTail(log, logs, JOB, clock=lambda: NOW)


def write(log: Path, text: str) -> None:
    with log.open("a") as file:
        file.write(text)


def test_lines_of_a_rank_that_helps_are_its_towers(log: Path, logs: MemoryLogs, tail: LogTail) -> None:
    write(log, f"[rank1]: {format_stage_mark('item.1', Stage.TABLES)}\n[rank1]: 40% tables\n")
    tail.forward()
    assert logs.read(JOB, TowerName.ITEM)[0].stage is Stage.TABLES


def test_each_rank_has_a_place_of_its_own(log: Path, logs: MemoryLogs, tail: LogTail) -> None:
    write(
        log,
        f"[default0]:{format_stage_mark('user', Stage.TRACE)}\n"
        f"[default1]:{format_stage_mark('item', Stage.ROWS)}\n",
    )
    write(log, "[default0]:a\n[default1]:b\n[default0]:c\n")
    tail.forward()
    assert logs.read(JOB) == (
        LogPart(tower=TowerName.USER, stage=Stage.TRACE, lines=("03:04:05 a", "03:04:05 c")),
        LogPart(tower=TowerName.ITEM, stage=Stage.ROWS, lines=("03:04:05 b",)),
    )


def test_an_unfinished_line_waits(log: Path, logs: MemoryLogs, tail: LogTail) -> None:
    write(log, "one\ntw")
    tail.forward()
    assert logs.read(JOB)[0].lines == ("03:04:05 one",)
    write(log, "o\n")
    tail.forward()
    assert logs.read(JOB)[0].lines == ("03:04:05 one", "03:04:05 two")


def test_nothing_is_read_where_there_is_no_log(logs: MemoryLogs, tail: LogTail) -> None:
    tail.forward()
    assert logs.read(JOB) == ()


def test_a_ranks_events_are_lines_of_their_stage(log: Path, logs: MemoryLogs, tail: LogTail) -> None:
    told = [
        make_event(),
        make_event(kind="progress", fraction=0.5, detail="guards"),
        make_event(kind="finished", seconds=2.0),
    ]
    write(log, "".join(f"[default0]:{line}\n" for event in told for line in format_event(event)))
    tail.forward()
    assert logs.read(JOB, TowerName.USER, Stage.TRACE)[0].lines == (
        "03:04:05 trace of user",
        "03:04:05 50% guards",
        "03:04:05 done in 2.0 s",
    )


def test_of_more_than_is_read_at_a_time_the_latest_lines_are_passed_on(log: Path, logs: MemoryLogs) -> None:
    write(log, "early\n" * 1000 + "late\n")
    LogTail(log, logs, JOB, at_a_time=11, clock=lambda: NOW).forward()
    assert logs.read(JOB)[0].lines == ("03:04:05 early", "03:04:05 late")


def test_a_line_without_an_end_is_passed_on_in_pieces(log: Path, logs: MemoryLogs) -> None:
    tail = LogTail(log, logs, JOB, at_a_time=1000, clock=lambda: NOW)
    write(log, "x" * 2500)
    tail.forward()
    write(log, "y\nnext\n")
    tail.forward()
    assert logs.read(JOB)[0].lines == (f"03:04:05 {'x' * 1000}", "03:04:05 y", "03:04:05 next")


def test_a_line_has_the_time_at_which_it_was_read(log: Path, logs: MemoryLogs) -> None:
    times = iter([NOW, NOW + timedelta(seconds=90)])
    tail = LogTail(log, logs, JOB, clock=lambda: next(times))
    for text in ("one\n", "two\n"):
        write(log, text)
        tail.forward()
    assert logs.read(JOB)[0].lines == ("03:04:05 one", "03:05:35 two")
