"""Instruction sets are found without compiling programs, and as inductor's own probes find them."""

import platform
import subprocess
import sys

import pytest
from torch._inductor import cpp_builder  # noqa: TID251  has the compiler's flags
from torch._inductor.cpu_vec_isa import VecAVX2, VecISA  # noqa: TID251  what is asked otherwise

from exporter.aoti.inductor import instruction_sets
from exporter.aoti.inductor.instruction_sets import limit_instruction_sets, probe_quickly
from exporter.errors import CompileFailed

pytestmark = pytest.mark.skipif(platform.machine() != "x86_64", reason="only there are programs compiled")

_ASK = """
import subprocess
from torch._inductor.cpu_vec_isa import pick_vec_isa
from exporter.aoti.inductor.instruction_sets import cpu_instruction_sets
run, started = subprocess.run, []
subprocess.run = lambda command, **rest: started.append(command) or run(command, **rest)
print({asked}, sum("-shared" in " ".join(each) or "LoadLibrary" in each[-1] for each in started))
"""


def _ask(asked: str) -> tuple[str, int]:
    """Return the answer of a fresh process, and how many libraries it has compiled or loaded for it."""
    command = [sys.executable, "-c", _ASK.format(asked=asked)]
    answer = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    sets, _, programs = answer.rpartition(" ")
    return sets.lower(), int(programs)


@pytest.mark.planted  # inductor's own probes take ten seconds
def test_the_answer_is_that_of_inductors_own_probes() -> None:
    quick, none = _ask("*cpu_instruction_sets()")
    own, programs = _ask("pick_vec_isa()")
    assert (quick, none) == (own, 0) and programs > 0


def test_no_program_is_compiled_or_loaded() -> None:
    sets, programs = _ask("*cpu_instruction_sets()")
    assert sets and programs == 0


class _Probe(VecAVX2):
    """An instruction set whose slow probe is recorded instead of run."""


def _asked(monkeypatch: pytest.MonkeyPatch, isa: VecISA) -> tuple[bool, list[VecISA]]:
    """Return the answer on `isa`, and what inductor's own probe was asked for it, which says no."""
    slow: list[VecISA] = []

    def probe(self: VecISA, code: str) -> bool:
        slow.append(self)
        return False

    monkeypatch.setattr(VecISA, "check_build", probe)
    instruction_sets._accepts.cache_clear()
    with probe_quickly():
        return isa.check_build(VecISA._avx_code), slow


def test_a_known_set_needs_no_probe(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _asked(monkeypatch, _Probe()) == (True, [])


def test_inductor_probes_what_the_compiler_does_not_take(monkeypatch: pytest.MonkeyPatch) -> None:
    isa = _Probe()
    monkeypatch.setitem(instruction_sets._INSTRUCTIONS, "-mavx2", "no_such_instruction")
    assert _asked(monkeypatch, isa) == (False, [isa])


def test_inductor_probes_a_set_with_unknown_flags(monkeypatch: pytest.MonkeyPatch) -> None:
    isa = _Probe()
    isa._arch_flags = "-mavx2 -mavx10.2"
    assert _asked(monkeypatch, isa) == (False, [isa])


def test_inductor_probes_where_torch_lacks_vector_functions(monkeypatch: pytest.MonkeyPatch) -> None:
    isa = _Probe()
    monkeypatch.setitem(instruction_sets._VECTOR_FUNCTIONS, 256, "Sleef_no_such_function")
    instruction_sets._has_vector_functions.cache_clear()
    try:
        assert _asked(monkeypatch, isa) == (False, [isa])
    finally:
        instruction_sets._has_vector_functions.cache_clear()


LEVELS = [("avx2", "x86-64-v3"), ("avx512", "x86-64-v4"), ("cpu", "native")]


@pytest.mark.parametrize(("target", "march"), LEVELS)
def test_the_compiler_is_told_the_level(target: str, march: str) -> None:
    with limit_instruction_sets(target):
        flags = cpp_builder.CppTorchOptions(vec_isa=VecAVX2()).get_cflags()
    assert [flag for flag in flags if flag.startswith("march=")] == [f"march={march}"]


def test_nothing_is_compiled_for_a_level_that_the_compiler_is_not_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cpp_builder, "_get_optimization_cflags", lambda *_: (["O3"], []))
    with limit_instruction_sets("avx2"), pytest.raises(CompileFailed, match="x86-64-v3"):
        cpp_builder.CppTorchOptions(vec_isa=VecAVX2())
