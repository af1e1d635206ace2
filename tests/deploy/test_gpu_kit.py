"""What a GPU machine without a package index is given: pins, and a script that puts them into place."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from deploy.gpu_kit import ROOT, main, pins_of

OTHER = [path.stem.removeprefix("torch-") for path in (ROOT / "requirements").glob("torch-*.txt")]


@pytest.mark.parametrize("torch", ["2.13", *OTHER])
def test_torch_stays_the_machines_own_and_its_operators_fit_it(torch: str) -> None:
    pins = dict(pin.split("==") for pin in pins_of(torch))
    assert not pins.keys() & {"torch", "triton", "numpy", "sympy", "botocore"}
    assert {"fbgemm-gpu-cpu", "torchrec", "pydantic", "cryptography", "protobuf"} <= pins.keys()
    released = (ROOT / "requirements" / ("cpu.txt" if torch == "2.13" else f"torch-{torch}.txt")).read_text()
    assert f"fbgemm-gpu-cpu=={pins['fbgemm-gpu-cpu']}" in released


def test_a_release_without_pins_is_refused_before_the_old_kit_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = tmp_path / "kit" / "use"
    kept.parent.mkdir()
    kept.touch()
    monkeypatch.setattr(sys, "argv", ["gpu_kit", "--torch", "1.9", "--folder", str(kept.parent)])
    assert main() == 1
    assert "no pins for torch 1.9" in capsys.readouterr().err
    assert kept.exists()


def test_a_folder_of_something_else_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = tmp_path / "thesis.md"
    kept.touch()
    monkeypatch.setattr(sys, "argv", ["gpu_kit", "--folder", str(tmp_path)])
    assert main() == 1
    assert "is no kit" in capsys.readouterr().err
    assert kept.exists()


def test_the_page_names_what_is_there(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "gpu.md").read_text()
    for command in re.findall(r"python3? -m ((?:deploy|benchmarks)\.gpu[a-z_.]*)", page):
        told = [sys.executable, "-m", command, "--help"]
        assert subprocess.run(told, capture_output=True, check=False, cwd=ROOT).returncode == 0, command
