"""Only the end of a log is read."""

from pathlib import Path

from processes.log_end import read_log_end


def test_of_a_long_log_the_end_is_given(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("begun\n" * 1000 + "ended\n")
    assert read_log_end(log, 12) == "begun\nended\n"


def test_a_short_one_is_given_whole_whatever_its_bytes(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(b"\xff ended")
    assert read_log_end(log) == "\ufffd ended"
