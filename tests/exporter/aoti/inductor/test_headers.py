"""Precompiled headers are made where that is asked for, and used where they are."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from torch._inductor import codecache  # noqa: TID251  what makes headers
from torch._inductor.cpu_vec_isa import VecAVX2  # noqa: TID251  an option of the compiler

from exporter.aoti.inductor.headers import keep_headers, use_headers


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    codecache._precompile_header.cache_clear()
    yield tmp_path
    codecache._precompile_header.cache_clear()


def _header(name: str) -> str | None:
    options = {"aot_mode": True, "device_type": "cpu", "vec_isa": VecAVX2()}
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
