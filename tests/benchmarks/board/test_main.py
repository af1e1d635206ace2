"""The board records a run as it goes."""

from pathlib import Path

from benchmarks.board.__main__ import main
from benchmarks.board.record import Record, read_record


def test_the_last_record_is_replaced_and_never_half_written(tmp_path: Path) -> None:
    zoo, file, last = tmp_path / "zoo.json", tmp_path / "board.json", tmp_path / "last.json"
    zoo.write_text('{"models": [], "left_out": {}}')
    earlier = Record(at="2026-01-01T00:00:00+00:00", torch="2.13.0", rows=())
    file.write_text(earlier.model_dump_json())
    last.hardlink_to(file)  # what was written in place would be seen through it
    assert main(["--zoo", str(zoo), "--record", str(file), "--json"]) == 1
    now = read_record(file)
    assert now is not None and now.rows and read_record(last) == earlier
    assert {path.name for path in tmp_path.iterdir()} == {"zoo.json", "board.json", "last.json"}
