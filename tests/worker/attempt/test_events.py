"""Reading the ranks' reports while they are written."""

from pathlib import Path

from tests.jobs.factories import make_event
from worker.attempt.events import EventTail


def test_events_of_all_ranks_come_once_and_in_order(tmp_path: Path) -> None:
    tail = EventTail(tmp_path)
    for rank, at in ((0, 2.0), (1, 1.0)):
        (tmp_path / f"events-{rank}.jsonl").write_text(make_event(at=at).model_dump_json() + "\n")
    assert [event.at for event in tail.read()] == [1.0, 2.0]
    assert tail.read() == []


def test_a_line_still_being_written_waits(tmp_path: Path) -> None:
    tail, line = EventTail(tmp_path), make_event().model_dump_json()
    path = tmp_path / "events-0.jsonl"
    path.write_text(line[:10])
    assert tail.read() == []
    path.write_text(line + "\n")
    assert tail.read() == [make_event()]


def test_a_damaged_line_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / "events-0.jsonl").write_text("nonsense\n" + make_event().model_dump_json() + "\n")
    assert EventTail(tmp_path).read() == [make_event()]


def test_what_could_not_be_told_is_given_again(tmp_path: Path) -> None:
    tail = EventTail(tmp_path)
    tail.put_back([make_event()])
    assert tail.read() == [make_event()]


def test_a_line_that_no_event_is_so_long_as_is_passed_over_in_pieces(tmp_path: Path) -> None:
    event = make_event().model_dump_json() + "\n"
    (tmp_path / "events-0.jsonl").write_text("x" * 5000 + "\n" + event)
    tail = EventTail(tmp_path, at_a_time=1000)
    assert [event for _ in range(8) for event in tail.read()] == [make_event()]
