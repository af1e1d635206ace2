"""The kernels' checks and measurements need torch and Triton, and nothing else that is installed here."""

import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.gpu import slices
from benchmarks.gpu.slices import SLICES, run_slice

ROOT = Path(__file__).parents[2]

# An import of anything that torch and triton do not bring fails, as it would where there is nothing else.
_ALONE = """
import importlib.abc, sys
class Missing(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name.partition(".")[0] in {missing!r}:
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Missing())
import benchmarks.gpu.__main__, processes.guard
"""
_MISSING = (
    "fbgemm_gpu",
    "torchrec",
    "pydantic",
    "pyarrow",
    "google",
    "structlog",
    "safetensors",
    "boto3",
    "redis",
)


def test_kernels_are_checked_and_measured_with_torch_and_triton_alone() -> None:
    program = _ALONE.format(missing=_MISSING)
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr


@pytest.mark.slow
def test_every_test_for_a_gpu_is_in_one_slice() -> None:
    slices_of_tests = [what for commands in SLICES.values() for what in commands if what[0] == "pytest"]
    found = [_collected(*options) for _, *options in slices_of_tests]
    everything = _collected("tests/gpu")
    assert sorted(test for each in found for test in each) == sorted(everything)
    assert len(everything) > 200


def _collected(*options: str) -> list[str]:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--collect-only", *options]
    ended = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
    return [line for line in ended.stdout.splitlines() if "::" in line]


def test_a_slice_that_has_no_time_left_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_slice("figures", tmp_path, 0.0) == 1
    assert capsys.readouterr().out.count("not begun: no time was left") == len(SLICES["figures"])


def test_a_slice_ends_in_time_and_keeps_what_was_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    program = "import time; print('the first case', flush=True); time.sleep(60)"
    monkeypatch.setattr(slices, "command_of", lambda *_: [sys.executable, "-c", program])
    monkeypatch.setattr(slices, "_SPARE_S", 0.0)
    assert run_slice("calls", tmp_path, 3.0) == 1
    assert "more than 3 s" in capsys.readouterr().out
    assert "the first case" in (tmp_path / "calls-1.log").read_text()
