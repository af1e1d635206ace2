"""Precompiled headers of the machine: a warm-up makes them, and compiling uses those that it finds."""

import hashlib
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from unittest import mock

import torch
from torch._inductor import codecache, cpp_builder
from torch._inductor.cpp_builder import CppBuilder
from torch._inductor.runtime.cache_dir_utils import cache_dir

from exporter.aoti.compiler_options import CPU_LEVELS
from exporter.spec import Target

_PRECOMPILED = ".gch"  # what g++ looks for beside a header


def header_folder(target: Target = "cpu") -> Path:
    """Return the folder of precompiled headers for a target, inside the compiler's cache."""
    return Path(cache_dir(), "precompiled_headers", target if target in CPU_LEVELS else _native_machine())


@contextmanager
def keep_headers(folder: Path) -> Iterator[None]:
    """Cache precompiled headers, which take 11 seconds to compile, in `folder`: see `workarounds.HEADERS`.

    Each is noted by what it is made from, so that it is found without preprocessing the header once more.
    """
    make = codecache._precompile_header

    def make_and_note(header: str, command: str, **options: object) -> str | None:
        made: str | None = make(header, command, **options)
        if made is not None and Path(f"{made}{_PRECOMPILED}").is_file():
            (folder / _note_name(header, command, options)).write_text(Path(made).name)
        return made

    with _header_folder_is(folder), mock.patch.object(codecache, "_precompile_header", make_and_note):
        yield


@contextmanager
def use_headers(folder: Path) -> Iterator[None]:
    """Use the precompiled headers in `folder`, and make none.

    They save a compile two seconds and take eleven to make. Where one is missing, the compiler reads the
    header itself.
    """
    make = codecache._worker_compile_cpp

    def make_others(lock_path: str, builders: Sequence[CppBuilder]) -> None:
        others = [each for each in builders if not each.get_target_file_path().endswith(_PRECOMPILED)]
        if others:
            make(lock_path, tuple(others))

    look = codecache._precompile_header
    has_some = any(folder.glob(f"*{_PRECOMPILED}"))

    def find(header: str, command: str, **options: object) -> str | None:
        if not has_some:  # then it need not be found out which
            return None
        with suppress(OSError):
            noted = folder / (folder / _note_name(header, command, options)).read_text()
            if Path(f"{noted}{_PRECOMPILED}").is_file():
                return str(noted)
        found: str | None = look(
            header, command, **options
        )  # preprocesses the header to find out which it is
        return found

    with (
        _header_folder_is(folder),
        mock.patch.object(codecache, "_worker_compile_cpp", make_others),
        mock.patch.object(codecache, "_precompile_header", find),
    ):
        yield


@contextmanager
def _header_folder_is(folder: Path) -> Iterator[None]:
    with (
        mock.patch.object(codecache, "_HEADER_DIR", str(folder)),
        mock.patch.object(codecache, "_HEADER_LOCK_DIR", str(folder / "locks")),
    ):
        yield


def _note_name(header: str, command: str, options: Mapping[str, object]) -> str:
    """Return the name of the note on a header that is precompiled with these options."""
    given = sorted((name, str(value)) for name, value in options.items())
    compiler = cpp_builder.get_compiler_version_info(cpp_builder.get_cpp_compiler())
    facts = (header, command, given, compiler, installed_headers())
    return f"{hashlib.sha256(repr(facts).encode()).hexdigest()}.made"


@cache
def installed_headers() -> str:
    """Return a digest that changes when torch is installed anew, or when its headers for packages change."""
    installed = Path(torch.__file__).stat().st_mtime_ns
    digest = hashlib.sha256(f"{torch.__version__} {torch.version.git_version} {installed}".encode())
    folder = Path(torch.__path__[0], "include", "torch", "csrc", "inductor")
    for header in sorted(path for path in folder.rglob("*") if path.is_file()):
        digest.update(str(header.relative_to(folder)).encode() + header.read_bytes())
    return digest.hexdigest()


@cache
def _native_machine() -> str:
    """Return a digest of the C++ compiler's native options; it refuses headers compiled with others."""
    command = [cpp_builder.get_cpp_compiler(), "-march=native", "-###", "-E", "-x", "c++", "/dev/null"]
    answer = subprocess.run(command, check=False, capture_output=True, text=True)
    return hashlib.sha256(answer.stderr.encode()).hexdigest()[:16]
