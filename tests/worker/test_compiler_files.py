"""What a compiler left is removed after a day, and what spares work is kept."""

import os
from pathlib import Path

from worker.compiler_files import prune


def test_only_old_leftovers_go(tmp_path: Path) -> None:
    for name in ("old", "new", "precompiled_headers"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_text("generated")
    for name in ("old", "precompiled_headers"):
        os.utime(tmp_path / name, (0, 0))
    prune(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["new", "precompiled_headers"]


def test_a_machine_without_leftovers_is_fine(tmp_path: Path) -> None:
    prune(tmp_path / "never made")
