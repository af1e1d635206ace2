"""One tower failing does not stop the other, and leaves nothing behind."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cli.main import main
from exporter.artifact.read import read_manifest
from tests.e2e.conftest import export_command

pytestmark = pytest.mark.slow


def test_the_item_tower_is_published_without_the_user_tower(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = tmp_path / "rows.parquet"
    pq.write_table(pa.table({"user_id": [1, 2]}), rows)
    output = tmp_path / "out"
    assert main([*export_command("hstu_match", output), "--sample-input", str(rows), "--ranks", "1"]) == 3
    only_the_item_tower(output)
    assert "[invalid_rows]" in capsys.readouterr().err


def test_a_tower_killed_by_the_kernel_does_not_take_the_other_with_it(tmp_path: Path) -> None:
    output = tmp_path / "out"
    options = ["--code-cache", "off"]  # so that there is time to be killed in
    command = [sys.executable, "-m", "cli.main", *export_command("hstu_match", output), *options]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as export:
        os.kill(tower_process(export.pid, "user"), signal.SIGKILL)
        _, said = export.communicate()
    assert export.returncode == 3
    assert "user: [tower_died] the process that exported the user tower was killed by SIGKILL" in said
    only_the_item_tower(output)


def only_the_item_tower(output: Path) -> None:
    [artifact] = output.iterdir()
    assert sorted(path.name for path in artifact.iterdir()) == ["item", "manifest.json"]
    assert [tower.name for tower in read_manifest(str(artifact)).towers] == ["item"]


def tower_process(ancestor: int, tower: str) -> int:
    """The process below `ancestor` in which a rank exports a tower, once there is one."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if found := [pid for pid in descendants(ancestor) if name_of(pid) == f"{tower} tower"]:
            return found[0]
        time.sleep(0.1)
    raise AssertionError("no tower was begun")


def name_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def descendants(pid: int) -> list[int]:
    try:
        children = [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []
    return children + [each for child in children for each in descendants(child)]
