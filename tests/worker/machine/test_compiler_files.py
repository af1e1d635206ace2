"""Generated files are removed after a day, and reusable ones are kept."""

import os
import time
from pathlib import Path

from worker.machine.compiler_files import copy_precompiled, remove_old_files


def made(folder: Path) -> None:
    """Create files as the compiler does: a program's, the processor's probes, compiled headers."""
    for name in ("c6bc/x.wrapper.so", "5m/c5mo.so", "precompiled_headers/avx2/h.gch", "24/x.py"):
        (folder / name).parent.mkdir(parents=True)
        (folder / name).write_text("generated")


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_only_old_leftovers_of_programs_go(tmp_path: Path) -> None:
    made(tmp_path)
    for path in tmp_path.iterdir():
        os.utime(path, (0, 0))
    (tmp_path / "new").mkdir()
    remove_old_files(tmp_path)
    assert names(tmp_path) == {"new", "5m", "precompiled_headers"}


def test_beyond_the_limit_the_oldest_go_but_not_what_is_at_work(tmp_path: Path) -> None:
    for name, age in (("old", 9000), ("older", 12000), ("new", 10)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "x.so").write_bytes(bytes(100))
        os.utime(tmp_path / name, (time.time() - age, time.time() - age))
    remove_old_files(tmp_path, limit=250)
    assert names(tmp_path) == {"old", "new"}
    remove_old_files(tmp_path, limit=0)
    assert names(tmp_path) == {"new"}


def test_what_was_made_ahead_is_laid_in_once(tmp_path: Path) -> None:
    ahead, folder = tmp_path / "ahead", tmp_path / "folder"
    made(ahead)
    copy_precompiled(ahead, folder)
    assert names(folder) == {"5m", "precompiled_headers"}
    (ahead / "5m" / "c5mo.so").write_text("another")
    copy_precompiled(ahead, folder)
    assert (folder / "5m" / "c5mo.so").read_text() == "generated"
    assert names(folder / "precompiled_headers" / "avx2") == {"h.gch"}


def test_a_machine_without_leftovers_is_fine(tmp_path: Path) -> None:
    remove_old_files(tmp_path / "never made")
    copy_precompiled(tmp_path / "never made", tmp_path)
