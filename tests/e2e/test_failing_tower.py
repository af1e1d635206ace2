"""One tower failing does not stop the other, and leaves nothing behind."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cli.main import main
from exporter.publish import read_manifest
from tests.e2e.conftest import export_command

pytestmark = pytest.mark.slow


def test_the_item_tower_is_published_without_the_user_tower(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = tmp_path / "rows.parquet"
    pq.write_table(pa.table({"user_id": [1, 2]}), rows)
    output = tmp_path / "out"
    assert main([*export_command("hstu_match", output), "--sample-input", str(rows)]) == 3
    [artifact] = output.iterdir()
    assert sorted(path.name for path in artifact.iterdir()) == ["item", "manifest.json"]
    assert [tower.name for tower in read_manifest(str(artifact)).towers] == ["item"]
    assert "[invalid_rows]" in capsys.readouterr().err
