"""A log of the compiler knows every step, and the compiler does what it did."""

import subprocess
from pathlib import Path

import pytest

from benchmarks.compiling.compiler_log import CompilerLog


def _compile(log: CompilerLog, *arguments: str | Path, given: str = "") -> int:
    command = ["env", f"PATH={log.path}", "g++", *map(str, arguments)]
    return subprocess.run(command, input=given, text=True, check=False, capture_output=True).returncode


def test_each_run_of_the_compiler_belongs_to_a_step(tmp_path: Path) -> None:
    log = CompilerLog(tmp_path / "tools")
    sources = [
        tmp_path / f"x.{name}.cpp" for name in ("wrapper", "wrapper.rest", "wrapper.interface", "kernel")
    ]
    for source in sources:
        source.write_text(f"int {source.name.split('.')[-2]}() {{ return 1; }}\n")
        assert _compile(log, source, "-c", "-fPIC", "-o", source.with_suffix(".o")) == 0
    objects = [each.with_suffix(".o") for each in sources]
    assert _compile(log, *objects, "-shared", "-o", tmp_path / "x.wrapper.so") == 0
    assert (tmp_path / "x.wrapper.so").exists()
    (tmp_path / "x.h").write_text("#include <cstdint>\n")
    assert _compile(log, "-x", "c++-header", tmp_path / "x.h", "-o", tmp_path / "x.h.gch") == 0
    assert _compile(log, "-x", "c++", "-c", "-", "-o", "/dev/null", given="int x;") == 0
    steps = log.take_steps()
    assert all(seconds > 0 for seconds in steps.values())
    assert sorted(steps) == [
        "g++ on the interface of packages",
        "g++ on the kernels",
        "g++ on the wrapper",
        "linking",
        "precompiling headers",
        "probes of the processor",
    ]
    assert log.take_steps() == {}


@pytest.mark.parametrize("flag", ["--version", "-no-such-option"])
def test_the_exit_status_is_the_compilers(tmp_path: Path, flag: str) -> None:
    own = subprocess.run(["g++", flag], check=False, capture_output=True).returncode
    assert _compile(CompilerLog(tmp_path / "tools"), flag) == own
