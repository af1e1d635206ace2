"""A tower with a submodule in bf16, from the command line to its manifest."""

import json
from pathlib import Path

import pytest

from cli.main import main
from exporter.artifact.read import read_manifest
from exporter.spec import SetPrecision, TowerName
from tests.e2e.conftest import export_command

pytestmark = pytest.mark.slow

ASKED = SetPrecision(tower=TowerName.ITEM, submodule="item_tower.mlp", precision="bf16")


def test_a_pass_goes_through_the_gate_into_the_manifest(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    request = tmp_path / "request.json"
    request.write_text(json.dumps({"passes": [ASKED.model_dump()], "towers": ["item"]}))
    assert main([*export_command("hstu_match", tmp_path / "out"), "--spec", str(request)]) == 0
    [artifact] = (tmp_path / "out").iterdir()
    [item] = read_manifest(str(artifact)).towers
    assert [(applied.asked, applied.calls) for applied in item.passes] == [(ASKED, ("item_tower.mlp",))]
    assert 1e-5 < item.verified.largest_difference < item.verified.tolerance == 2e-2
    main(["inspect", "--full", str(artifact)])
    assert "item_tower.mlp computes in bf16 in 1 calls" in capsys.readouterr().out
