"""A tower small enough to compile in seconds, with a history, and its package."""

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.export import ExportedProgram

from exporter.config.blocks.match_towers import Similarity
from exporter.config.families.match.hstu_match import HstuMatchConfig
from exporter.config.hstu.encoder import (
    HstuConfig,
    PositionalEncoderConfig,
    PostprocessorConfig,
    PostprocessorKind,
    StuConfig,
    UihPreprocessorConfig,
)
from exporter.config.schema import PipelineConfig
from exporter.data.rows import NamedBatch
from exporter.dims.plan import BATCH, DimPlan, DynamicDim, TensorInput
from exporter.spec import TowerName
from exporter.towers.tower import Tower
from exporter.towers.view import TowerConfig
from exporter.trace.trace_tower import trace_tower
from exporter.verify.reload import Link
from tests.compiled_package import compile_package
from tests.exporter.models.recorded import random_inputs, recorded_tower
from tests.shared import fill_once

PLAN = DimPlan(
    inputs=(
        TensorInput(name="clicks.values", dtype="int64", shape=("seq_clicks",)),
        TensorInput(name="clicks.lengths", dtype="int64", shape=(BATCH,)),
        TensorInput(name="price.values", dtype="float32", shape=("seq_clicks", 1)),
    ),
    dims=(
        DynamicDim(name="seq_clicks", low=0, high=640, reason="shared by 2 inputs of sequence clicks"),
        DynamicDim(name=BATCH, low=1, high=64, reason="rows per call"),
    ),
)


class MeanPrice(nn.Module):
    """Each row's sum of embedding times price; refuses lengths that do not add up."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            self.table = nn.Embedding(50, 8)

    def forward(self, inputs: dict[str, Tensor]) -> dict[str, Tensor]:
        lengths_B, ids_N = inputs["clicks.lengths"], inputs["clicks.values"]
        torch._assert_async(lengths_B.sum() == ids_N.shape[0], "clicks.lengths do not add up")
        rows_N = torch.repeat_interleave(lengths_B, output_size=ids_N.shape[0])
        events_ND = self.table(ids_N) * inputs["price.values"]
        return {"embedding": events_ND.new_zeros(lengths_B.shape[0], 8).index_add(0, rows_N, events_ND)}


class Greedy(MeanPrice):
    """The same, by the way of more numbers than any machine holds where there are many rows."""

    def forward(self, inputs: dict[str, Tensor]) -> dict[str, Tensor]:
        rows = inputs["clicks.lengths"].shape[0]
        sorted_numbers = inputs["price.values"].new_ones(rows**8).cumsum(0).sort().values
        return {"embedding": super().forward(inputs)["embedding"] * sorted_numbers[0]}


def mean_price_tower(seed: int = 0) -> Tower:
    stu = StuConfig(embedding_dim=8, num_heads=1, hidden_dim=8, attention_dim=8)
    model = HstuMatchConfig(
        user_input="clicks",
        hstu=HstuConfig(
            stu=stu,
            num_layers=1,
            positional_encoder=PositionalEncoderConfig(num_position_buckets=8),
            preprocessor=UihPreprocessorConfig(),
            postprocessor=PostprocessorConfig(kind=PostprocessorKind.L2NORM),
        ),
        max_seq_len=10,
        item_input="candidate",
        item_mlp=None,
        output_dim=0,
        similarity=Similarity.INNER_PRODUCT,
        timestamps_ascending=True,
    )
    pipeline = PipelineConfig(text="", features=(), groups=(), model=model, train_input_path="")
    config = TowerConfig(name=TowerName.USER, view="training", pipeline=pipeline)
    return Tower(config=config, module=MeanPrice(seed).eval(), plan=PLAN)


def clicks(*lengths: int, seed: int = 0) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    total = sum(lengths)
    return {
        "clicks.values": torch.randint(50, (total,), generator=generator),
        "clicks.lengths": torch.tensor(lengths),
        "price.values": torch.rand(total, 1, generator=generator),
    }


def batch(name: str, *lengths: int) -> NamedBatch:
    return NamedBatch(name=name, inputs=clicks(*lengths))


@pytest.fixture(scope="session")
def tower() -> Tower:
    return mean_price_tower()


@pytest.fixture(scope="session")
def chain(tower: Tower, run_folder: Path) -> list[Link]:
    def package(folder: Path) -> None:
        program = trace_tower(tower, clicks(3, 0, 4), torch.device("cpu"))
        compile_package(program, folder / "aoti_model.pt2")

    path = fill_once(run_folder, "mean_price", package) / "aoti_model.pt2"
    return [Link(package=path, order=tuple(tensor.name for tensor in PLAN.inputs))]


@pytest.fixture(scope="session")
def user_program() -> ExportedProgram:
    """A recorded user tower, traced with 7 rows and 29 events."""
    tower = recorded_tower("hstu_match", "user")
    return trace_tower(tower, random_inputs(tower, [3, 9, 5, 0, 4, 2, 6]), torch.device("cpu"))
