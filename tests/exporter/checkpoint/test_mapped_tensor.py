"""Large tensors stay in files; what is copied is what could not be used in place."""

import json
import os
from pathlib import Path

import pytest
import torch

from exporter.checkpoint.mapped_tensor import map_tensor, room_for
from exporter.checkpoint.safetensors import SafetensorsCheckpoint
from exporter.checkpoint.tensors import TensorMeta

LARGE = TensorMeta(shape=(1 << 18, 8), dtype=torch.float32)


@pytest.mark.parametrize("start", [0, 64, 4096, 4100, 4099], ids=lambda start: f"at {start}")
def test_a_tensor_is_what_the_file_holds(tmp_path: Path, start: int) -> None:
    values = torch.rand(LARGE.shape)
    path = tmp_path / "weights"
    path.write_bytes(bytes(start) + values.numpy().tobytes())
    found = map_tensor(path, start, LARGE)
    torch.testing.assert_close(found, values, rtol=0, atol=0)
    assert found.is_contiguous() and found.untyped_storage().nbytes() == found.nbytes
    assert found.data_ptr() % 4 == 0


def test_writing_into_a_mapped_tensor_leaves_the_file_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "weights"
    path.write_bytes(bytes(LARGE.nbytes))
    map_tensor(path, 0, LARGE).fill_(1.0)
    assert path.read_bytes() == bytes(LARGE.nbytes)


def test_a_tensor_larger_than_the_machines_memory_is_read_where_it_lies(tmp_path: Path) -> None:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    meta = TensorMeta(shape=(memory // 2, 4), dtype=torch.float32)  # twice as large
    entry = {"table": {"dtype": "F32", "shape": list(meta.shape), "data_offsets": [0, meta.nbytes]}}
    header = json.dumps(entry).encode()
    header += b" " * (-len(header) % 8)
    path = tmp_path / "huge.safetensors"
    with path.open("wb") as file:
        file.write(len(header).to_bytes(8, "little") + header)
        file.truncate(8 + len(header) + meta.nbytes)
    checkpoint = SafetensorsCheckpoint([path])
    assert checkpoint.tensors() == {"table": meta}
    assert checkpoint.read("table")[-1].sum() == 0


def test_a_large_tensor_takes_no_anonymous_memory(tmp_path: Path) -> None:
    meta = TensorMeta(shape=(1 << 26,), dtype=torch.float32)
    path = tmp_path / "weights"
    with path.open("wb") as file:
        file.truncate(meta.nbytes + 1)
    before = anonymous()
    in_place, copied = map_tensor(path, 0, meta), map_tensor(path, 1, meta)
    assert in_place.sum() == copied.sum() == 0
    assert anonymous() - before < 20 << 20


def test_room_without_elements_is_no_mapping() -> None:
    assert room_for(TensorMeta(shape=(0, 8), dtype=torch.float32)).shape == (0, 8)


def anonymous() -> int:
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("Pss_Anon:"))
