"""Written item vectors are compared with eager by the same measure as the package that computed them."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import torch

from exporter.data.parquet import open_parquet
from exporter.dtypes import Precision
from exporter.errors import VerificationFailed
from exporter.items.ids import check_ids
from exporter.items.materialise import compare_with_eager
from exporter.items.plan import Items, VectorsPlan
from exporter.items.stream import WrittenVectors, encode_calls
from exporter.items.vector_files import VectorsWriter
from exporter.lowering.lower_tower import lower_tower
from exporter.manifest import Metric
from exporter.towers.tower import Tower
from exporter.verify.runnable_tower import RunnableTower
from tests.exporter.models.recorded import FIXTURES, load_recorded_weights, recorded_tower, untrained

CPU = torch.device("cpu")
ROWS = 48


def item_tower(precision: Precision) -> Tower:
    """The recorded one, to compute in this precision."""
    config = recorded_tower("hstu_match", "item").config
    tower = untrained(replace(config, options=replace(config.options, precision=precision)))
    load_recorded_weights(tower.module, "hstu_match")
    return lower_tower(tower, CPU).tower


def vectors_by(tower: Tower, wanted: VectorsPlan, written: WrittenVectors) -> torch.Tensor:
    with torch.no_grad():
        calls = [call for batch in written.sampled for call in encode_calls(batch, wanted.items)]
        return torch.cat([tower.module(call)[wanted.output] for call in calls])


@pytest.fixture
def wanted(tmp_path: Path) -> VectorsPlan:
    source = open_parquet(str(FIXTURES / "data" / "items.parquet"))
    tower = recorded_tower("hstu_match", "item")
    items = Items(
        source=source,
        ids=check_ids(source, "video_id", scratch=tmp_path),
        features=tower.config.pipeline.features,
        plan=tower.plan,
        index=None,
        metric=Metric.COSINE,
    )
    return VectorsPlan(items=items, output="item_tower_emb", width=32, index=None)


def written_by(tower: Tower, wanted: VectorsPlan, folder: Path) -> WrittenVectors:
    """The first items, with vectors as a package that computes like `tower` would have written them."""
    [batch] = [*wanted.items.source.batches(["video_id"], rows_per_batch=2000)][:1]
    batch = replace(batch, table=batch.table.slice(0, ROWS))
    places = np.arange(ROWS, dtype=np.int64)
    written = WrittenVectors(parts=(), sample=places, sampled=(batch,), seconds=1.0, package_peak_bytes=0)
    vectors = vectors_by(tower, wanted, written).numpy()
    with VectorsWriter(folder, "video_id", wanted.items.ids.kind, width=32) as writer:
        writer.write(pa.concat_arrays(batch.table.column("video_id").chunks), vectors)
    return replace(written, parts=tuple(writer.parts))


def runnable_of(tower: Tower, scratch: Path) -> RunnableTower:
    return RunnableTower(tower=tower, chain=[], op_libraries=(), scratch=scratch, device=CPU)


def test_vectors_of_a_tower_in_bf16_may_round_as_its_package_does(
    wanted: VectorsPlan, tmp_path: Path
) -> None:
    runnable = runnable_of(item_tower(Precision.BF16), tmp_path)
    difference = compare_with_eager(
        wanted, runnable, written_by(item_tower(Precision.FP32), wanted, tmp_path)
    )
    assert 1e-5 < difference.relative <= runnable.tolerance


def test_vectors_of_a_tower_in_fp32_may_not(wanted: VectorsPlan, tmp_path: Path) -> None:
    runnable = runnable_of(item_tower(Precision.FP32), tmp_path)
    with pytest.raises(
        VerificationFailed, match="item .*, of 48 .* differs from eager by .*, allowed 1e-05 of it"
    ):
        compare_with_eager(wanted, runnable, written_by(item_tower(Precision.BF16), wanted, tmp_path))
