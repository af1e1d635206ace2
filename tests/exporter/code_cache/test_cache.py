"""The cache returns complete entries or nothing, and its errors never fail an export."""

import io
import json
import os
import threading
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from exporter.aoti.code import CompiledCode, ProgramCode
from exporter.code_cache.cache import CodeCache, open_code_cache
from exporter.code_cache.entry import pack_entry, unpack_entry
from exporter.manifest import TensorEntry

WRAPPER = b"""
    constants_info_[0].dtype = cached_torch_dtype_float32;
    constants_info_[0].offset = 0;
    constants_info_[0].data_size = 64;
    constants_info_[0].from_folded = false;
    constants_info_[0].shape = {2, 3};
    constants_info_[0].stride = {3, 1};
    constants_info_[0].original_fqn = "layer.weight";
"""


def code_of(fingerprint: str, size: int = 1000) -> ProgramCode:
    code = CompiledCode(
        files={"a.wrapper.cpp": WRAPPER, "a.wrapper.so": os.urandom(size)},
        values={"steps": torch.tensor([1.0, 10.0])},
    )
    return ProgramCode(
        fingerprint=fingerprint,
        code=code,
        state={"layer.weight": "float32 [2, 3], strides [3, 1]"},
        outputs=(TensorEntry(name="scores", dtype="float32", shape=("batch", 3)),),
        op_libraries=("fbgemm_gpu",),
    )


@pytest.fixture(params=["folder", "s3", "oss", "gs", "az"])
def cache(request: pytest.FixtureRequest, tmp_path: Path) -> CodeCache:
    local = request.param == "folder"
    return open_code_cache(
        str(tmp_path / "cache") if local else request.getfixturevalue(f"{request.param}_uri")
    )


def test_what_was_kept_comes_back(cache: CodeCache) -> None:
    kept = code_of("f1")
    cache.store("request", [kept, code_of("f2")])
    found, second = cache.find_request("request")
    assert (found.code.files, second.fingerprint) == (kept.code.files, "f2")
    assert (found.state, found.outputs, found.op_libraries) == (kept.state, kept.outputs, kept.op_libraries)
    torch.testing.assert_close(dict(found.code.values), dict(kept.code.values))


def test_nothing_is_found_of_what_was_dropped(cache: CodeCache) -> None:
    known = code_of("f1")
    cache.store("request", [known])
    cache.remove("request", [known])
    assert cache.find_request("request") == () and cache.find_graph("f1") is None


def test_a_request_can_come_to_another_graph_later(cache: CodeCache) -> None:
    cache.store("request", [code_of("f1")])
    cache.store("request", [code_of("f2")])
    assert [known.fingerprint for known in cache.find_request("request")] == ["f2"]


def test_a_damaged_entry_is_a_miss_and_makes_room_for_a_sound_one(tmp_path: Path) -> None:
    cache = open_code_cache(str(tmp_path))
    cache.store("request", [code_of("f1")])
    entry = tmp_path / "code" / "f1.zip"
    data = bytearray(entry.read_bytes())
    data[len(data) // 2] ^= 1
    entry.write_bytes(data)
    assert cache.find_request("request") == ()
    cache.store("request", [code_of("f1")])
    assert len(cache.find_request("request")) == 1


@pytest.mark.parametrize("change", [{"layout": 2}, {"fingerprint": "f2"}], ids=["too new", "foreign"])
def test_an_entry_of_another_layout_or_graph_is_a_miss(change: dict[str, object]) -> None:
    changed = io.BytesIO()
    with (
        zipfile.ZipFile(io.BytesIO(pack_entry(code_of("f1")))) as entry,
        zipfile.ZipFile(changed, "w") as archive,
    ):
        for name in entry.namelist():
            data = entry.read(name)
            archive.writestr(name, json.dumps(json.loads(data) | change) if name == "entry.json" else data)
    assert unpack_entry(changed.getvalue(), "f1") is None


@pytest.mark.parametrize("data", [b"", b"not a zip", b"PK\x05\x06" + bytes(18)])
def test_what_is_no_entry_is_a_miss(data: bytes) -> None:
    assert unpack_entry(data, "f1") is None


def test_two_that_keep_the_same_code_at_once_do_not_disturb_each_other(tmp_path: Path) -> None:
    known = code_of("f1", size=1 << 20)
    caches = [open_code_cache(str(tmp_path)) for _ in range(4)]
    threads = [threading.Thread(target=cache.store, args=("request", [known])) for cache in caches]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [found.code.files for found in caches[0].find_request("request")] == [known.code.files]
    assert len(list((tmp_path / "code").iterdir())) == 1


def test_what_was_used_least_recently_goes_first(tmp_path: Path) -> None:
    cache = open_code_cache(str(tmp_path), limit=350_000)
    for age, name in enumerate("abc"):
        cache.store(name, [code_of(name, size=100_000)])
        for file in (tmp_path / "code" / f"{name}.zip", tmp_path / "requests" / f"{name}.json"):
            os.utime(file, ns=(0, age + 1))
    assert len(cache.find_request("a")) == 1  # used again
    cache.store("d", [code_of("d", size=100_000)])
    assert [name for name in "abcd" if cache.find_request(name)] == ["a", "c", "d"]


def test_a_cache_that_cannot_be_written_or_read_is_only_a_miss(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file where a folder should be")
    cache = open_code_cache(str(tmp_path / "cache"))
    cache.store("request", [code_of("f1")])
    assert cache.find_request("request") == ()


def test_a_folder_of_its_own_is_its_owners_alone(tmp_path: Path) -> None:
    open_code_cache(str(tmp_path / "cache"))
    assert (tmp_path / "cache").stat().st_mode & 0o777 == 0o700


def test_code_tells_how_weights_do_not_fit() -> None:
    known = code_of("f1")
    assert known.find_mismatch({"layer.weight": torch.zeros(2, 3)}) == ""
    assert known.find_mismatch({}) == "there is no layer.weight"
    assert known.find_mismatch({"layer.weight": torch.zeros(2, 3), "bias": torch.zeros(1)}) == "bias is new"
    assert "strides [1, 2]" in known.find_mismatch({"layer.weight": torch.zeros(3, 2).t()})
    assert "float64" in known.find_mismatch({"layer.weight": torch.zeros(2, 3).double()})
    assert (
        replace(known, state={}).find_mismatch({"layer.weight": torch.zeros(2, 3)}) == "layer.weight is new"
    )
