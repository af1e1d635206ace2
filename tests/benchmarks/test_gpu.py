"""What the benchmark of a GPU does on a machine without one, and with parts of it that break."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from benchmarks.gpu import attention
from benchmarks.gpu.__main__ import run_parts
from benchmarks.gpu.attention import AttentionFigures
from benchmarks.gpu.device_timing import Missing, Spread, of_each
from benchmarks.gpu.part_process import Run

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


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, check=False, timeout=120
    )


def test_kernels_are_checked_and_measured_with_torch_and_triton_alone() -> None:
    ended = run("-c", _ALONE.format(missing=_MISSING))
    assert ended.returncode == 0, ended.stderr


@pytest.mark.skipif(torch.cuda.is_available(), reason="is about machines without a GPU")
def test_without_a_gpu_it_says_so() -> None:
    ended = run("-m", "benchmarks.gpu", "check")
    assert ended.returncode == 2
    assert "finds no CUDA device" in ended.stderr


def test_a_part_that_is_none_is_named() -> None:
    ended = run("-m", "benchmarks.gpu", "attenion")
    assert ended.returncode == 2
    assert "there is no part attenion" in ended.stderr


# Stands for a part: it writes its table, and then goes as its name says.
_PART = """
import os, pathlib, subprocess, sys, time
name, out = sys.argv[1:]
pathlib.Path(out, f"{name}.txt").write_text(f"table of {name}\\n")
if name == "dies": os.kill(os.getpid(), 9)
if name == "hangs": time.sleep(subprocess.Popen(["sleep", "1000"]).pid + 1000)
"""


@pytest.mark.parametrize("broken", ["dies", "hangs"])
def test_a_part_that_dies_or_hangs_costs_no_other_its_table(
    broken: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("benchmarks.gpu.__main__._LONGEST_S", 5.0)

    def command(name: str, left_s: float) -> list[str]:
        assert left_s > 0
        return [sys.executable, "-c", _PART, name, str(tmp_path)]

    status = run_parts(["before", broken, "well"], tmp_path, 60.0, command)
    told = capsys.readouterr()
    assert status == 1 and f"failed: {broken}" in told.err
    for name in ("before", broken, "well"):
        assert f"\n{name}\ntable of {name}\n" in told.out
    assert ("status 137" if broken == "dies" else "took more than 5 s") in told.out


def test_parts_without_time_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_parts(["check", "output"], tmp_path, 0.0, lambda name, left_s: ["false"]) == 1
    assert capsys.readouterr().out.count("not begun: no time was left") == 2


def test_a_case_that_raises_or_has_no_time_costs_only_its_own_figure() -> None:
    left_s = iter([9.0, 9.0, 9.0, 0.0])
    found = list(of_each([2, 0, 4, 8], lambda case: 1 / case, lambda: next(left_s)))
    assert found[0] == 0.5 and found[2] == 0.25
    assert str(found[1]) == "FAILED: 0: ZeroDivisionError: division by zero"
    assert str(found[3]) == "left out: 8: no time was left"


def test_what_was_measured_is_in_the_file_before_the_rest_is(tmp_path: Path) -> None:
    first = Run(tmp_path, 60.0)
    first.keep("check", ["ok"])
    second = Run(tmp_path, 60.0)
    second.keep("attention", [1])
    assert json.loads((tmp_path / "gpu.json").read_text()) == {"check": ["ok"], "attention": [1]}


def test_a_failing_contender_is_told_below_the_table() -> None:
    once = Spread.of([1.0])
    figure = AttentionFigures(
        case="8192",
        width=128,
        kernel_ms=once,
        tflops=1.0,
        of_matrix_rate=0.5,
        eager_over_kernel=None,
        compiled_over_kernel=once,
        failed={"eager": "OutOfMemoryError: CUDA out of memory."},
    )
    *_, last = attention.shown([figure, Missing(case="x", why="no time was left")]).splitlines()
    assert last == "8192 128: eager failed: OutOfMemoryError: CUDA out of memory."


def test_an_interrupt_leaves_the_tables_that_there_are(tmp_path: Path) -> None:
    program = (
        "import signal, sys; from pathlib import Path; from benchmarks.gpu.__main__ import run_parts\n"
        # As in a terminal, even where the tests run in the background, which is started deaf to it.
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        f"part = lambda name, left_s: [sys.executable, '-c', {_PART!r}, name, {str(tmp_path)!r}]\n"
        f"sys.exit(run_parts(['before', 'hangs', 'well'], Path({str(tmp_path)!r}), 99.0, part))"
    )
    running = subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    hanging = tmp_path / "hangs.txt"
    while not hanging.exists() or not hanging.read_text():
        assert running.poll() is None
        time.sleep(0.05)
    os.killpg(running.pid, signal.SIGINT)  # as a terminal does it: to all of them
    told, _ = running.communicate(timeout=60)
    assert running.returncode == 130
    assert told.endswith(
        "before\ntable of before\n\nhangs\ntable of hangs\ninterrupted\n\nwell\ninterrupted\n"
    )
