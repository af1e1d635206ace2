"""The vector instruction sets that inductor compiles for, found without compiling a program for each."""

import ctypes
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from unittest import mock

import torch
from torch._inductor import cpp_builder, cpu_vec_isa
from torch._inductor.cpu_vec_isa import VecISA
from torch._inductor.exc import InvalidCxxCompiler

from exporter.aoti.compiler_options import CPU_LEVELS, MARCH
from exporter.errors import CompileFailed
from exporter.spec import Target

# An instruction of each extension that inductor names to the compiler, for its assembler.
_INSTRUCTIONS = {
    "-mavx2": "vpaddd %ymm0, %ymm1, %ymm2",
    "-mfma": "vfmadd213ps %ymm0, %ymm1, %ymm2",
    "-mf16c": "vcvtph2ps %xmm0, %ymm1",
    "-mavx512f": "vpaddd %zmm0, %zmm1, %zmm2",
    "-mavx512dq": "vandps %zmm0, %zmm1, %zmm2",
    "-mavx512vl": "vpternlogd $0, %ymm0, %ymm1, %ymm2",
    "-mavx512bw": "vpaddb %zmm0, %zmm1, %zmm2",
    "-mavx512vnni": "vpdpbusd %zmm0, %zmm1, %zmm2",
    "-mavx512bf16": "vcvtne2ps2bf16 %zmm0, %zmm1, %zmm2",
    "-mamx-tile": "tilezero %tmm0",
    "-mamx-bf16": "tdpbf16ps %tmm0, %tmm1, %tmm2",
    "-mamx-int8": "tdpbusd %tmm0, %tmm1, %tmm2",
    "-mamx-fp16": "tdpfp16ps %tmm0, %tmm1, %tmm2",
}
_NATIVE = "march=native"  # as inductor writes the flag
_VECTOR_FUNCTIONS = {256: "Sleef_expf8_u10", 512: "Sleef_expf16_u10"}  # by the bits of a vector


def cpu_instruction_sets() -> tuple[str, ...]:
    """Return the vector instruction sets that inductor compiles for on this machine: ("avx512", ...)."""
    try:
        with probe_quickly():
            isa = cpu_vec_isa.pick_vec_isa()
    except InvalidCxxCompiler:  # without a compiler there are none
        return ()
    return tuple(str(isa).lower().split()) if isa else ()


@contextmanager
def probe_quickly() -> Iterator[None]:
    """Ask the compiler and torch's library what inductor's probes find out: see `workarounds.PROBES`.

    Where the answer is not yes, inductor's own probe decides.
    """
    build = VecISA.check_build

    def check(self: VecISA, code: str) -> bool:
        flags = tuple(self.build_arch_flags().split())
        return (_has_vector_functions(self.bit_width()) and _accepts(flags)) or bool(build(self, code))

    with mock.patch.object(VecISA, "check_build", check):
        yield


@cache
def _accepts(flags: tuple[str, ...]) -> bool:
    """Return whether the C++ compiler takes these flags, and its assembler their instructions."""
    if not flags or not _INSTRUCTIONS.keys() >= set(flags):
        return False
    lines = "".join(f'asm("{_INSTRUCTIONS[flag]}");\n' for flag in flags)
    command = [cpp_builder.get_cpp_compiler(), *flags, "-x", "c++", "-c", "-", "-o", "/dev/null"]
    return subprocess.run(command, input=lines.encode(), check=False, capture_output=True).returncode == 0


@cache
def _has_vector_functions(bits: int) -> bool:
    """Return whether torch's library has functions on vectors of so many bits, which compiled code calls."""
    library = ctypes.CDLL(str(Path(torch.__path__[0], "lib", "libtorch_cpu.so")))
    return bits in _VECTOR_FUNCTIONS and hasattr(library, _VECTOR_FUNCTIONS[bits])


@contextmanager
def limit_instruction_sets(target: Target) -> Iterator[None]:
    """Limit inductor's vector code, and the C++ compiler's, to the target's level of x86-64.

    Of the 512-bit instruction sets inductor would pick the newest (AMX, VNNI, bfloat16), which not every
    machine of the level has.
    """
    if target not in CPU_LEVELS:
        yield
        return
    with _limit_vector_code(target), _limit_compiler(MARCH[target]):
        yield


@contextmanager
def _limit_compiler(march: str) -> Iterator[None]:
    """Name a level to the C++ compiler where inductor names this machine."""
    own = cpp_builder._get_optimization_cflags

    def flags(*args: object, **options: object) -> tuple[list[str], list[str]]:
        found, for_linker = own(*args, **options)  # type: ignore[arg-type]  # whatever inductor gives it
        if _NATIVE not in found:  # a package for this machine alone must not pass for one of the level
            raise CompileFailed(f"inductor does not give the C++ compiler {_NATIVE}, which {march} replaces")
        return [f"march={march}" if flag == _NATIVE else flag for flag in found], for_linker

    with mock.patch.object(cpp_builder, "_get_optimization_cflags", flags):
        yield


@contextmanager
def _limit_vector_code(target: Target) -> Iterator[None]:
    known = cpu_vec_isa.supported_vec_isa_list
    plain = [isa for isa in known if str(isa) == target and isa]  # the truth value runs the test for bfloat16
    wide = [isa for isa in plain if isinstance(isa, cpu_vec_isa.VecAVX512)]
    bf16 = [isa for isa in wide if isa._is_avx512_bf16_supported]
    cpu_vec_isa.supported_vec_isa_list = plain
    for isa in bf16:
        isa._is_avx512_bf16_supported = False
    _forget_instruction_sets()
    try:
        yield
    finally:
        cpu_vec_isa.supported_vec_isa_list = known
        for isa in bf16:
            isa._is_avx512_bf16_supported = True
        _forget_instruction_sets()


def _forget_instruction_sets() -> None:
    cpu_vec_isa.valid_vec_isa_list.cache_clear()
    cpu_vec_isa.VecAVX512.is_avx512_bf16_supported.cache_clear()
