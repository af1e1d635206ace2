"""The interface of packages is compiled once, kept, and linked; what is kept and a source never disagree."""

import os
import shlex
import subprocess
import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch._inductor import cpp_builder  # noqa: TID251  what runs the compiler
from torch._inductor.cpp_builder import CppBuilder, CppTorchDeviceOptions  # noqa: TID251  what is divided
from torch._inductor.exc import CppCompileError  # noqa: TID251  of a source that no compiler takes

from exporter.aoti.inductor import interface
from exporter.aoti.inductor.interface import DividedSource, divide, link_interface

_INTERFACE = Path(torch.__path__[0], "_inductor", "codegen", "aoti_runtime", "interface.cpp").read_text()
_HEAD = "\n#include <torch/csrc/inductor/aoti_include/cpu.h>\n"
_ANSWER = 'extern "C" int answer() { return 42; }\n'
_USES_A_MACRO = 'extern "C" AOTIRuntimeError answer() { CONVERT_EXCEPTION_TO_ERROR_CODE({}) }\n'


@pytest.fixture(autouse=True)
def _one_core(monkeypatch: pytest.MonkeyPatch) -> None:
    """A source is compiled by the time that the call returns."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0})


class Compiler:
    """The commands that are run for parts of sources."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.commands: list[Sequence[str]] = []
        run = interface._run

        def note_and_run(*command: str) -> None:
            self.commands.append(command)
            run(*command)

        monkeypatch.setattr(interface, "_run", note_and_run)

    def take_parts(self) -> list[str]:
        """Return which parts were compiled since the last call."""
        sources = [Path(word) for command in self.commands for word in command if word.endswith(".cpp")]
        self.commands.clear()
        return [source.name.split(".")[-2] for source in sources]


@pytest.fixture
def compiler(monkeypatch: pytest.MonkeyPatch) -> Compiler:
    return Compiler(monkeypatch)


def _builder(folder: Path, text: str, *flags: str) -> CppBuilder:
    """Return the builder of a package's source; nothing is optimised."""
    folder.mkdir(exist_ok=True)
    source = folder / "a.wrapper.cpp"
    source.write_text(text)
    options = CppTorchDeviceOptions(
        compile_only=True, aot_mode=True, device_type="cpu", extra_flags=["-O0", "-g0", *flags]
    )
    return CppBuilder(name="a.wrapper", sources=str(source), output_dir=str(folder), BuildOption=options)


def _divided(builder: CppBuilder) -> DividedSource:
    found = divide(shlex.split(builder.get_command_line()))
    assert found is not None
    return found


def _functions(builder: CppBuilder) -> set[str]:
    """Return the functions that an object offers."""
    command = ["nm", "--defined-only", "--extern-only", builder.get_target_file_path()]
    listed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return {line.split()[-1] for line in listed.splitlines()}


@pytest.mark.slow
def test_parts_are_linked_to_what_the_whole_gives_and_the_interface_is_compiled_once(
    tmp_path: Path, compiler: Compiler
) -> None:
    text, kept = _HEAD + _INTERFACE + _ANSWER, tmp_path / "kept"
    whole, first, second = (_builder(tmp_path / name, text) for name in ("whole", "first", "second"))
    whole.build()
    assert compiler.take_parts() == []
    with link_interface(kept):
        first.build()
        assert compiler.take_parts() == ["interface", "rest"]
        second.build()
        assert compiler.take_parts() == ["rest"]
    for each in (first, second):
        assert _functions(whole) <= _functions(each)
        folder = Path(each.get_target_file_path()).parent
        assert {path.name for path in folder.iterdir()} == {"a.wrapper.cpp", "a.wrapper.o"}
        assert (folder / "a.wrapper.cpp").read_text() == text


@pytest.mark.slow
@pytest.mark.parametrize("damage", [b"", b"no object"])
def test_a_kept_object_that_is_not_what_was_kept_is_compiled_again(
    tmp_path: Path, compiler: Compiler, damage: bytes
) -> None:
    kept = tmp_path / "kept"
    builder = _builder(tmp_path / "a", _HEAD + _INTERFACE + _ANSWER)
    with link_interface(kept):
        builder.build()
        [file] = kept.iterdir()
        whole = file.read_bytes()
        file.write_bytes(damage)
        compiler.take_parts()
        builder.build()
    assert compiler.take_parts() == ["interface", "rest"]
    assert file.read_bytes() == whole
    assert "AOTInductorModelContainerRun" in _functions(builder)


@pytest.mark.slow
def test_a_source_whose_rest_cannot_stand_alone_is_compiled_whole(tmp_path: Path, compiler: Compiler) -> None:
    builder = _builder(tmp_path / "a", _HEAD + _INTERFACE + _USES_A_MACRO)
    with link_interface(tmp_path / "kept"):
        builder.build()
    assert "rest" in compiler.take_parts()
    assert {"answer", "AOTInductorModelContainerRun"} <= _functions(builder)


def test_a_source_of_another_kind_is_compiled_whole(tmp_path: Path, compiler: Compiler) -> None:
    with link_interface(tmp_path / "kept"):
        builder = _builder(tmp_path / "a", _ANSWER)
        builder.build()
        broken = _builder(tmp_path / "b", "no C++")
        with pytest.raises(CppCompileError, match="no C"):
            broken.build()
    assert compiler.take_parts() == [] and not (tmp_path / "kept").exists()
    assert _functions(builder) == {"answer"}


def test_each_fact_that_an_object_depends_on_is_part_of_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    divided = _divided(_builder(tmp_path / "a", _HEAD + _INTERFACE + _ANSWER))
    folder = tmp_path / "native-1"
    names = [
        divided.name(folder),
        divided.name(tmp_path / "native-2"),
        _divided(_builder(tmp_path / "a", _HEAD + _INTERFACE + _ANSWER, "-fno-exceptions")).name(folder),
        replace(divided, command=(*divided.command, "-DUSE_MMAP_EXTERNAL")).name(folder),
        replace(divided, interface=divided.interface + " ").name(folder),
    ]
    monkeypatch.setattr(interface, "installed_headers", lambda: "of another torch")
    names.append(divided.name(folder))
    monkeypatch.undo()
    monkeypatch.setattr(cpp_builder, "get_compiler_version_info", lambda compiler: "another")
    names.append(divided.name(folder))
    assert len(set(names)) == len(names)


def test_neither_the_rest_nor_a_precompiled_header_is_part_of_its_name(tmp_path: Path) -> None:
    text = _HEAD + _INTERFACE
    one, other = (_divided(_builder(tmp_path / name, text + name)) for name in ("a", "b"))
    assert one.name(tmp_path) == other.name(tmp_path)
    with_header = replace(other, command=(*other.command, "-include", "/somewhere/header.h"))
    assert with_header.name(tmp_path) == one.name(tmp_path)


@pytest.mark.slow
def test_on_two_cores_kernels_are_compiled_meanwhile_and_linking_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    is_compiled = threading.Event()
    build = DividedSource.build

    def build_after_the_kernels(divided: DividedSource, folder: Path) -> None:
        assert is_compiled.wait(120)
        build(divided, folder)

    monkeypatch.setattr(DividedSource, "build", build_after_the_kernels)
    builder = _builder(tmp_path / "a", _HEAD + _INTERFACE + _ANSWER)
    kernels = tmp_path / "k.kernel.cpp"
    kernels.write_text('extern "C" int kernel() { return 1; }\n')
    with link_interface(tmp_path / "kept"):
        builder.build()
        cpp_builder.run_compile_cmd(f"g++ -fPIC -c {kernels} -o {kernels}.o", str(tmp_path))
        is_compiled.set()
        library, objects = tmp_path / "a.so", f"{builder.get_target_file_path()} {kernels}.o"
        cpp_builder.run_compile_cmd(f"g++ -shared {objects} -o {library}", str(tmp_path))
    linked = subprocess.run(["nm", "-D", library], check=True, capture_output=True, text=True).stdout
    assert {"answer", "kernel"} <= {line.split()[-1] for line in linked.splitlines()}


@pytest.mark.slow
def test_on_two_cores_linking_says_what_could_not_be_compiled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    builder = _builder(tmp_path / "a", _HEAD + _INTERFACE + "int answer() { return nothing; }\n")
    linking = f"g++ -shared {builder.get_target_file_path()} -o a.so"
    with link_interface(tmp_path / "kept"):
        builder.build()
        with pytest.raises(CppCompileError, match="nothing"):
            cpp_builder.run_compile_cmd(linking, str(tmp_path))
