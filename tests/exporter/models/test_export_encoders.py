"""Every sequence encoder survives torch.export in both modes, and AOTInductor where lengths are sizes."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from exporter.aoti.torch_loader import Package
from exporter.config.blocks.mask_net import MaskBlockConfig, MaskNetConfig
from exporter.config.blocks.mlp import MlpConfig
from exporter.config.blocks.sequence_encoders import (
    DinEncoderConfig,
    MultiWindowDinEncoderConfig,
    PoolingEncoderConfig,
    SelfAttentionEncoderConfig,
    SimpleAttentionConfig,
)
from exporter.config.families.multi_task.dbmtl import DbmtlConfig
from exporter.config.schema import PipelineConfig
from exporter.data.batch import trace_inputs
from exporter.data.rows import read_rows
from exporter.spec import TowerName
from exporter.towers.split import split_tower
from exporter.towers.tower import Tower
from exporter.towers.view import training_tower
from exporter.trace.trace_tower import trace_tower
from exporter.verify.numerics import measure_scales
from tests.compiled_package import compile_package
from tests.exporter.models.recorded import FIXTURES, Batch, pipeline_of, require_close, untrained

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:_check_is_size will be removed:FutureWarning"),  # fbgemm calls it
]

_ATTENTION = MlpConfig(hidden_units=(6,), activation="Dice", use_bn=True)
ENCODERS = (
    DinEncoderConfig(group="click_din", attn_mlp=_ATTENTION, max_seq_length=3),
    SelfAttentionEncoderConfig(group="click_2", width=6, num_heads=3, max_seq_length=4),
    SelfAttentionEncoderConfig(group="buy_pool", width=4, num_heads=1),
    PoolingEncoderConfig(group="buy_pool", max_seq_length=2),
    MultiWindowDinEncoderConfig(group="buy_attn", attn_mlp=_ATTENTION, windows=(1, 2, 4)),
    SimpleAttentionConfig(group="buy_attn", max_seq_length=1),
)
# Rows of the two sequences, padded to the longest or to two places.
LENGTHS = [
    ([0], [0]),
    ([1], [0]),
    ([5, 0], [0, 1]),
    ([0, 0, 0], [8, 2, 0]),
    ([20, 1, 3, 4, 0] * 8, [2, 0, 7, 3, 1] * 8),
]


def all_encoders() -> PipelineConfig:
    """The recorded dbmtl with other encoders, and with what its shared layers may have beside them."""
    pipeline = pipeline_of("dbmtl")
    assert isinstance(pipeline.model, DbmtlConfig)
    block = MaskBlockConfig(hidden_dim=8, reduction_ratio=0.5)
    model = replace(pipeline.model, mask_net=MaskNetConfig(blocks=2, block=block, parallel=False))
    groups = tuple(replace(group, encoders=ENCODERS) for group in pipeline.groups)
    return replace(pipeline, model=model, groups=groups, variational_dropout=True)


def embedded(dense: Tower, clicks: list[int], purchases: list[int]) -> Batch:
    """What the lookups may give to the dense part, for rows of these lengths."""
    lengths = {"click": torch.tensor(clicks), "buy": torch.tensor(purchases)}
    inputs: dict[str, Tensor] = {}
    for tensor in dense.plan.inputs:
        rows = lengths["click" if tensor.name.startswith("click") else "buy"]
        longest = max(2, *rows.tolist())
        varying = {dim.name: longest for dim in dense.plan.dims} | {"batch": len(rows)}
        sizes = [size if isinstance(size, int) else varying[size] for size in tensor.shape]
        inputs[tensor.name] = rows if tensor.name.endswith("_length") else torch.randn(sizes)
    return inputs


@pytest.fixture(scope="module")
def tower() -> Tower:
    return untrained(training_tower(all_encoders(), TowerName.MODEL))


@pytest.fixture(scope="module")
def dense(tower: Tower) -> Tower:
    _, part = split_tower(tower, max_batch_size=64)
    return part


def test_a_whole_tower_is_traced(tower: Tower) -> None:
    rows = read_rows(str(FIXTURES / "data" / "rec" / "train.parquet"), tower.config.pipeline.features)
    trace_tower(tower, trace_inputs(rows, tower.plan), torch.device("cpu"))


@pytest.fixture(scope="module")
def package(dense: Tower, tmp_path_factory: pytest.TempPathFactory) -> Package:
    inputs = embedded(dense, [3, 11, 5, 0, 4, 2, 6], [3, 8, 5, 0, 4, 2, 6])
    program = trace_tower(dense, inputs, torch.device("cpu"))
    return Package(compile_package(program, tmp_path_factory.mktemp("encoders") / "aoti_model.pt2"))


@pytest.mark.parametrize(("clicks", "purchases"), LENGTHS, ids=lambda rows: f"{len(rows)}x{max(rows)}")
def test_a_dense_package_computes_what_eager_computes(
    dense: Tower, package: Package, clicks: list[int], purchases: list[int]
) -> None:
    inputs = embedded(dense, clicks, purchases)
    with torch.no_grad():
        expected = dense.module(inputs)
        usual = measure_scales(dense.module(embedded(dense, *LENGTHS[-1])))  # see `usual_scales`
    require_close(package(inputs), expected, usual)
