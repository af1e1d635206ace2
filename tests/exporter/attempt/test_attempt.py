"""What is written when a stage fails."""

from pathlib import Path

from exporter.attempt.attempt import Diagnostics


def fail(evidence: Diagnostics) -> None:
    try:
        raise RuntimeError("no such op")
    except RuntimeError as error:
        evidence.write(error)


def test_what_was_kept_is_written_with_the_traceback(tmp_path: Path) -> None:
    evidence = Diagnostics(tmp_path / "user" / "evidence")
    evidence.keep("sizes.txt", lambda: "batch 2")
    fail(evidence)
    written = {file.name: file.read_text() for file in (tmp_path / "user" / "evidence").iterdir()}
    assert written["sizes.txt"] == "batch 2"
    assert "in fail" in written["traceback.txt"] and "no such op" in written["traceback.txt"]


def test_a_text_that_cannot_be_made_leaves_the_others(tmp_path: Path) -> None:
    evidence = Diagnostics(tmp_path)
    evidence.keep("program.txt", lambda: str(1 / 0))
    evidence.keep("sizes.txt", lambda: "batch 2")
    fail(evidence)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["sizes.txt", "traceback.txt"]


def test_nothing_is_made_before_a_failure(tmp_path: Path) -> None:
    Diagnostics(tmp_path / "evidence").keep("program.txt", lambda: str(1 / 0))
    assert list(tmp_path.iterdir()) == []
