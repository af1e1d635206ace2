"""Precompiled headers are made where that is asked for, and used where they are."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from torch._inductor import codecache, cpp_builder  # noqa: TID251  what makes headers
from torch._inductor.cpp_builder import CppBuilder  # noqa: TID251  the same
from torch._inductor.cpu_vec_isa import VecAVX2  # noqa: TID251  an option of the compiler

from exporter.aoti.inductor import headers
from exporter.aoti.inductor.headers import keep_headers, use_headers


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    codecache._precompile_header.cache_clear()
    yield tmp_path
    codecache._precompile_header.cache_clear()


def _header(name: str, **changes: object) -> str | None:
    options = {"aot_mode": True, "device_type": "cpu", "vec_isa": VecAVX2(), **changes}
    header: str | None = codecache._precompile_header(name, "command", **options)
    return header


def test_no_header_is_made_or_named_where_there_is_none(folder: Path) -> None:
    with use_headers(folder):
        assert _header("cstdint") is None
    assert list(folder.iterdir()) == []


def test_a_header_that_was_made_is_used_and_another_is_read_as_it_is(folder: Path) -> None:
    with keep_headers(folder):
        made = _header("cstdint")
    [precompiled] = folder.glob("*.gch")
    codecache._precompile_header.cache_clear()
    with use_headers(folder):
        assert _header("cstdint") == made and f"{made}.gch" == str(precompiled)
        other = _header("cstddef")
    assert other is not None and other != made
    assert Path(other).read_text() == "#include <cstddef>\n"
    assert list(folder.glob("*.gch")) == [precompiled]


def test_a_header_that_was_made_is_found_without_preprocessing_it(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with keep_headers(folder):
        made = _header("cstdint")
    codecache._precompile_header.cache_clear()

    def refuse(self: CppBuilder) -> None:
        raise AssertionError(f"{self.get_command_line()} was run")

    monkeypatch.setattr(CppBuilder, "build", refuse)
    with use_headers(folder):
        assert _header("cstdint") == made


@pytest.mark.parametrize("change", ["options", "torch", "compiler", "note", "header"])
def test_a_header_whose_note_does_not_fit_is_looked_for(
    folder: Path, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    with keep_headers(folder):
        made = _header("cstdint")
    codecache._precompile_header.cache_clear()
    looked: list[str] = []
    build = CppBuilder.build

    def note_and_build(self: CppBuilder) -> None:
        looked.append(self.get_command_line())
        build(self)

    monkeypatch.setattr(CppBuilder, "build", note_and_build)
    [note], [precompiled] = folder.glob("*.made"), folder.glob("*.gch")
    options = {}
    if change == "options":
        options = {"vec_isa": VecAVX2(), "min_optimize": True}
    elif change == "torch":
        monkeypatch.setattr(headers, "installed_headers", lambda: "another")
    elif change == "compiler":
        monkeypatch.setattr(cpp_builder, "get_compiler_version_info", lambda compiler: "another")
    elif change == "note":
        note.write_text("another.h")
    else:
        precompiled.unlink()
        (folder / "another.h.gch").touch()
    with use_headers(folder):
        found = _header("cstdint", **options)
    assert looked  # preprocessed, as torch does it
    assert found == made
