"""The half of every package's C++ that is the same: compiled once on a machine, kept, and linked.

The source that AOTInductor writes for a CPU begins with the functions by which packages are called. With the
members of the base class of all models they take half of its compile time. They become an object of their
own, which the compiler of the rest is told of. The source that a package contains stays whole.
"""

import hashlib
import os
import secrets
import shlex
import subprocess
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from unittest import mock

import torch
from torch._inductor import cpp_builder

from exporter.aoti.inductor.headers import installed_headers

_FIRST_LINE = "\n#include <torch/csrc/inductor/aoti_include/cpu.h>\n"
_CONTAINER = "#include <torch/csrc/inductor/aoti_runtime/model_container.h>"  # only the interface needs it
_BASE = "namespace torch::aot_inductor {{ {}template class AOTInductorModelBase<AOTInductorModel>; }}\n"
_SUFFIX = ".interface.o"


@contextmanager
def link_interface(folder: Path) -> Iterator[None]:
    """Keep the compiled interface of packages in `folder`; see `workarounds.INTERFACE`.

    Where a source cannot be divided, or one of the parts cannot be compiled, the source is compiled whole.
    With more than one core this goes on while the kernels are compiled, until the objects are linked.
    """
    run_whole = cpp_builder.run_compile_cmd
    in_turn = len(os.sched_getaffinity(0)) == 1  # two compilers would take more memory, and no less time
    pending: list[Callable[[], None]] = []

    def finish(build: Callable[[], object], command_line: str, cwd: Path | str) -> None:
        try:
            build()
        except (OSError, subprocess.CalledProcessError):
            run_whole(command_line, str(cwd))  # its message is about the whole source

    def run(command_line: str, cwd: str) -> None:
        words = shlex.split(command_line)
        divided = divide(words)
        if divided is None:
            while pending and "-c" not in words:  # it links
                pending.pop()()
            run_whole(command_line, cwd)
        elif in_turn:
            finish(partial(divided.build, folder), command_line, cwd)
        else:
            built = executor.submit(divided.build, folder).result
            pending.append(
                partial(finish, built, command_line, divided.target.parent)
            )  # `cwd` is gone by then

    with ThreadPoolExecutor(1) as executor, mock.patch.object(cpp_builder, "run_compile_cmd", run):
        yield
        while pending:
            pending.pop()()


@dataclass(frozen=True, kw_only=True)
class DividedSource:
    """A source in two parts, and the command that compiles it whole."""

    command: tuple[str, ...]
    source: Path
    target: Path
    interface: str
    rest: str

    def build(self, folder: Path) -> None:
        """Build the target from the rest and the interface, which is taken from `folder` or kept there.

        Raises:
            CalledProcessError: a part cannot be compiled or linked.
            OSError: a file cannot be written.
        """
        name = self.name(folder)
        interface = _find(folder, name)
        if interface is None:
            interface = self._compile(self.interface, "interface").read_bytes()
            _keep(folder, name, interface)
        rest, common = self._compile(self.rest, "rest"), self.target.with_suffix(_SUFFIX)
        common.write_bytes(interface)
        _run(self.command[0], "-r", "-o", str(self.target), str(rest), str(common))
        for each in (rest, common):
            each.unlink()

    def name(self, folder: Path) -> str:
        """Return the name of the interface's object in `folder`, whose own name tells native options."""
        return hashlib.sha256(repr((folder.name, *self._facts())).encode()).hexdigest()

    def _facts(self) -> Iterator[str]:
        yield self.interface
        yield cpp_builder.get_compiler_version_info(self.command[0])
        yield installed_headers()
        words = iter(self.command)
        for word in words:
            if word == "-include":  # the same header, precompiled
                next(words)
            elif word not in (str(self.source), str(self.target)):
                yield word

    def _compile(self, text: str, part: str) -> Path:
        source, target = (self.target.with_suffix(f".{part}.{kind}") for kind in ("cpp", "o"))
        source.write_text(text)
        instead = {str(self.source): str(source), str(self.target): str(target)}
        _run(*(instead.get(word, word) for word in self.command))
        source.unlink()
        return target


def divide(command: Sequence[str]) -> DividedSource | None:
    """Divide the source that a command compiles; return None if it is no package's for a CPU."""
    sources = [Path(word) for word in command if word.endswith(".wrapper.cpp")]
    if len(sources) != 1 or "-c" not in command or command.count("-o") != 1:
        return None
    text, interface = sources[0].read_text(), _interface_text()
    if not text.startswith(_FIRST_LINE + interface):
        return None
    includes = [line for line in interface.splitlines() if line.startswith("#include") and line != _CONTAINER]
    rest = text.removeprefix(_FIRST_LINE + interface)
    return DividedSource(
        command=tuple(command),
        source=sources[0],
        target=Path(command[command.index("-o") + 1]),
        interface=_FIRST_LINE + interface + _BASE.format(""),
        rest=_FIRST_LINE + "\n".join(includes) + "\n" + _BASE.format("extern ") + rest,
    )


@cache
def _interface_text() -> str:
    return Path(torch.__path__[0], "_inductor", "codegen", "aoti_runtime", "interface.cpp").read_text()


def _find(folder: Path, name: str) -> bytes | None:
    """Return a kept object; one that is not what was kept is removed."""
    for path in folder.glob(f"{name}.*{_SUFFIX}"):
        data = path.read_bytes()
        if path.name == _file_name(name, data):
            return data
        path.unlink(missing_ok=True)
    return None


def _keep(folder: Path, name: str, data: bytes) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    partial = folder / f".{secrets.token_hex(8)}"
    try:
        partial.write_bytes(data)
        partial.replace(folder / _file_name(name, data))
    finally:
        partial.unlink(missing_ok=True)


def _file_name(name: str, data: bytes) -> str:
    return f"{name}.{hashlib.sha256(data).hexdigest()}{_SUFFIX}"


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True)
