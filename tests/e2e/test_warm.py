"""An export of an architecture exported before takes its code over, and says so."""

from pathlib import Path

import pytest

from cli.main import main
from exporter.published import read_manifest
from tests.e2e.conftest import export_command

pytestmark = pytest.mark.slow


def test_the_second_export_is_warm_in_manifest_and_on_screen(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["--tower", "item", "--code-cache", str(tmp_path / "code")]
    for name in ("first", "second"):
        assert main([*export_command("hstu_match", tmp_path / name), *command]) == 0
    [first], [artifact] = ((tmp_path / name).iterdir() for name in ("first", "second"))
    towers = [*read_manifest(str(first)).towers, *read_manifest(str(artifact)).towers]
    assert [(tower.code, tower.reused) for tower in towers] == [("cold", None), ("warm", "request")]
    assert towers[0].code_note == "the code cache has no code of this request"
    assert main(["inspect", str(artifact)]) == 0
    assert "item tower: warm, neither traced nor compiled" in capsys.readouterr().out
