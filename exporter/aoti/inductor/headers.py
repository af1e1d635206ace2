"""Precompiled headers of the machine: a warm-up makes them, and compiling uses those that it finds."""

import hashlib
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from unittest import mock

from torch._inductor import codecache, cpp_builder
from torch._inductor.cpp_builder import CppBuilder
from torch._inductor.runtime.cache_dir_utils import cache_dir

from exporter.aoti.compiler_options import CPU_LEVELS
from exporter.spec import Target


def header_folder(target: Target = "cpu") -> Path:
    """Return the folder of precompiled headers for a target, inside the compiler's cache."""
    return Path(cache_dir(), "precompiled_headers", target if target in CPU_LEVELS else _native_machine())


@contextmanager
def keep_headers(folder: Path) -> Iterator[None]:
    """Cache precompiled headers, which take 11 seconds to compile, in `folder`: see `workarounds.HEADERS`."""
    with (
        mock.patch.object(codecache, "_HEADER_DIR", str(folder)),
        mock.patch.object(codecache, "_HEADER_LOCK_DIR", str(folder / "locks")),
    ):
        yield


@contextmanager
def use_headers(folder: Path) -> Iterator[None]:
    """Use the precompiled headers in `folder`, and make none.

    They save a compile two seconds and take eleven to make. Where one is missing, the compiler reads the
    header itself.
    """
    make = codecache._worker_compile_cpp

    def make_others(lock_path: str, builders: Sequence[CppBuilder]) -> None:
        others = [each for each in builders if not each.get_target_file_path().endswith(".gch")]
        if others:
            make(lock_path, tuple(others))

    with keep_headers(folder), mock.patch.object(codecache, "_worker_compile_cpp", make_others):
        if any(folder.glob("*.gch")):
            yield
        else:  # then it need not be found out which
            with mock.patch.object(codecache, "_precompile_header", return_value=None):
                yield


@cache
def _native_machine() -> str:
    """Return a digest of the C++ compiler's native options; it refuses headers compiled with others."""
    command = [cpp_builder.get_cpp_compiler(), "-march=native", "-###", "-E", "-x", "c++", "/dev/null"]
    answer = subprocess.run(command, check=False, capture_output=True, text=True)
    return hashlib.sha256(answer.stderr.encode()).hexdigest()[:16]
