"""`slipway.export` as programs call it: weights of a checkpoint, codes of failures, scripts as they are."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import slipway
from exporter.errors import ExportError
from slipway.loader import load, prepare
from tests.architecture.tree import ROOT

EXAMPLE = {"city": torch.arange(12), "dense": torch.rand(12, 3)}

SCRIPT = """
import torch, slipway
from torch import nn

class Doubled(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(2, 2)

    def forward(self, dense):
        return self.layer(dense) * 2

slipway.export(Doubled(), {"dense": torch.rand(8, 2)}, output="published")
"""


class Scored(nn.Module):
    """A score per row, of an id and three numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.cities = nn.Embedding(40, 4)
        self.layer = nn.Linear(7, 1)

    def forward(self, city: Tensor, dense: Tensor) -> Tensor:
        scores: Tensor = self.layer(torch.cat([self.cities(city), dense], dim=1))
        return scores.squeeze(1)


@pytest.mark.slow
def test_the_weights_may_come_from_a_checkpoint(tmp_path: Path) -> None:
    built, trained = Scored(), Scored().eval()
    torch.save(trained.state_dict(), tmp_path / "weights.pt")
    lines: list[str] = []
    published = slipway.export(
        built,
        EXAMPLE,
        output=tmp_path / "out",
        checkpoint=tmp_path / "weights.pt",
        dims={"batch": (1, 64)},
        progress=lines.append,
    )
    assert published.packages.keys() == {"model"} and "job   succeeded" in lines
    with load(prepare(published.uri, tmp_path / "prepared"), "model") as tower, torch.no_grad():
        served = tower(slipway.plan(built, EXAMPLE).inputs())["output"]
        assert torch.allclose(served, trained(**EXAMPLE), atol=1e-5)


@pytest.mark.slow
def test_a_failure_of_the_export_has_its_code(tmp_path: Path) -> None:
    torch.save({"cities.weight": torch.ones(40, 4)}, tmp_path / "weights.pt")
    with pytest.raises(ExportError, match="2 missing: layer.bias, layer.weight") as failure:
        slipway.export(Scored(), EXAMPLE, output=tmp_path / "out", checkpoint=tmp_path / "weights.pt")
    assert failure.value.code == "checkpoint_mismatch"
    assert not list((tmp_path / "out").glob("*/manifest.json"))


def test_a_request_that_cannot_be_has_its_code(tmp_path: Path) -> None:
    with pytest.raises(ExportError, match="Extra inputs are not permitted") as failure:
        slipway.export(Scored(), EXAMPLE, output=tmp_path / "out", options={"unknown": "cpu"})
    assert failure.value.code == "invalid_spec"


def test_what_is_no_module_is_refused_before_anything_is_started(tmp_path: Path) -> None:
    with pytest.raises(ExportError, match="a state dict was given, and no nn.Module") as no:
        slipway.export(Scored().state_dict(), EXAMPLE, output=tmp_path / "out")
    assert no.value.code == "module_unusable" and no.value.__notes__ == [no.value.hint]


def test_a_plan_shows_its_hints_too() -> None:
    with pytest.raises(ExportError, match="no number of ids") as no:
        slipway.plan(Scored(), EXAMPLE, table_rows={"city": 0})
    assert no.value.__notes__ == [no.value.hint]


@pytest.mark.slow
def test_a_script_without_a_guard_is_told_to_have_one(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    said = _failed("script.py", tmp_path)
    assert "script.py calls slipway.export while it is imported" in said
    assert said.endswith('put what a script does under: if __name__ == "__main__":')


def test_a_class_that_is_in_no_file_is_refused(tmp_path: Path) -> None:
    assert "defined in an interactive session" in _failed("-", tmp_path)


def _failed(program: str, folder: Path) -> str:
    """What a program that fails says."""
    command = ["env", f"PYTHONPATH={ROOT}", sys.executable, program]
    ended = subprocess.run(
        command, cwd=folder, input=SCRIPT, capture_output=True, text=True, check=False, timeout=120
    )
    assert ended.returncode == 1
    return ended.stderr.strip()
