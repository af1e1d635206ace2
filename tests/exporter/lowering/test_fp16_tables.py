"""Tables that were trained in fp16 stay so in the package, or become what the request asks for."""

import os
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from exporter.checkpoint.mapped_tensor import map_tensor
from exporter.checkpoint.tensors import TensorMeta
from exporter.config.features.tables import remark_on_rounding
from exporter.dtypes import TableDtype
from exporter.lowering import tables
from exporter.lowering.lower_tower import LoweredTower, lower_tower
from exporter.lowering.tables import quantise_table, widen_table
from exporter.options.tables import Tables
from tests.exporter.models.recorded import (
    load_recorded_weights,
    pipeline_of,
    read_batch,
    recorded_tower,
    untrained,
)
from tests.memory_taken import memory_taken

MODEL = "dlrm_hstu_fp16"
TABLE_BYTES, WIDE_BYTES = 256 << 20, 512 << 20  # large enough that its memory is sampled several times
VIDEOS = "embedding_group.seq_emb_impls.__BASE__.ec_dict.16.embeddings.video_id_emb"


def lowered(asked: Tables) -> LoweredTower:
    config = recorded_tower(MODEL, "model").config
    tower = untrained(replace(config, options=replace(config.options, tables=asked)))
    load_recorded_weights(tower.module, MODEL)
    return lower_tower(tower, torch.device("cpu"))


@pytest.mark.parametrize(
    ("asked", "stored"),
    [
        (Tables(), torch.float16),
        (Tables(dtype=TableDtype.FP16), torch.float16),
        (Tables(dtype=TableDtype.FP32), torch.float32),
        (Tables(dtype=TableDtype.INT8, dtypes={"video_id_emb": TableDtype.FP32}), torch.float32),
    ],
)
def test_rows_that_stay_or_are_widened_are_exact(asked: Tables, stored: torch.dtype) -> None:
    found = lowered(asked)
    before = recorded_tower(MODEL, "model").module.get_parameter(f"{VIDEOS}.weight")
    after = found.tower.module.get_parameter(f"{VIDEOS}.weight")
    assert before.dtype is torch.float16 and after.dtype is stored
    assert torch.equal(before.float(), after.float())
    [entry] = (entry for entry in found.tables if entry.path == VIDEOS)
    assert (entry.trained, entry.error, entry.rows, entry.width) == ("fp16", None, 2000, 16)
    assert entry.bytes == after.nbytes and entry.fp32_bytes == 4 * after.numel()


@pytest.mark.parametrize("dtype", [None, TableDtype.FP32])
def test_tables_that_stay_or_are_widened_need_no_reference(dtype: TableDtype | None) -> None:
    found = lowered(Tables(dtype=dtype))
    assert found.fp32 is None
    inputs = read_batch(MODEL, "model__b7", "in")
    with torch.no_grad():
        expected = recorded_tower(MODEL, "model").module(inputs)
        outputs = found.tower.module(inputs)
    for name, output in outputs.items():
        assert output.dtype is expected[name].dtype
        torch.testing.assert_close(output, expected[name], rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("dtype", [TableDtype.INT8, TableDtype.INT4])
def test_quantised_tables_are_compared_with_the_tower_as_trained(dtype: TableDtype) -> None:
    found = lowered(Tables(dtype=dtype))
    assert all(entry.trained == "fp16" and entry.dtype == dtype and entry.error for entry in found.tables)
    assert found.fp32 is not None
    inputs = read_batch(MODEL, "model__b7", "in")
    with torch.no_grad():
        expected = recorded_tower(MODEL, "model").module(inputs)["logits_is_click"]
    assert torch.equal(found.fp32(inputs)["logits_is_click"], expected)


@pytest.mark.parametrize("dtype", [TableDtype.INT8, TableDtype.INT4])
def test_rows_of_fp16_are_quantised_as_if_they_were_fp32(
    dtype: TableDtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = torch.randn(50, 6, generator=torch.Generator().manual_seed(1)).half()
    expected, _ = quantise_table(rows.float(), dtype, name="t")
    monkeypatch.setattr(tables, "PIECE", 7 * 24)  # seven rows
    found, _ = quantise_table(rows, dtype, name="t")
    assert all(torch.equal(each, found.state_dict()[key]) for key, each in expected.state_dict().items())


def test_sums_that_the_peer_rounds_are_remarked_on() -> None:
    [remark] = remark_on_rounding(pipeline_of(MODEL))
    assert remark.startswith("Rows of fans_user_num_range_emb, ") and "video_id_emb" not in remark
    assert remark_on_rounding(pipeline_of("dlrm_hstu")) == ()


def widen_a_large_table(folder: Path) -> None:
    (folder / "rows").touch()
    os.truncate(folder / "rows", TABLE_BYTES)
    meta = TensorMeta(shape=(TABLE_BYTES // 32, 16), dtype=torch.float16)
    assert widen_table(map_tensor(folder / "rows", 0, meta)).weight.nbytes == WIDE_BYTES


def test_memory_does_not_grow_with_a_table_that_is_widened(tmp_path: Path) -> None:
    assert memory_taken(widen_a_large_table, tmp_path) < TABLE_BYTES // 4
