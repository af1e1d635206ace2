"""MIND survives torch.export and AOTInductor, whole and as its dense part, at sizes not traced with."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from exporter.aoti.torch_loader import Package
from exporter.config.families.match.mind import MindConfig, RoutingStart
from exporter.data.batch import trace_inputs, verification_batches
from exporter.data.rows import Rows, read_rows
from exporter.towers.split import split_tower
from exporter.towers.tower import Tower
from exporter.trace.trace_tower import trace_tower
from tests.compiled_package import compile_package
from tests.exporter.models.recorded import (
    FIXTURES,
    load_recorded_weights,
    read_batch,
    recorded_tower,
    tower_as_recorded,
    untrained,
)

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:_check_is_size will be removed:FutureWarning"),  # fbgemm calls it
]

_CPU = torch.device("cpu")


def rows_of(tower: Tower) -> Rows:
    return read_rows(str(FIXTURES / "data" / "rec" / "train.parquet"), tower.config.pipeline.features)


def drawn() -> Tower:
    """MIND's user tower with routing that starts from a drawing, as most are trained."""
    config = recorded_tower("mind", "user").config
    model = config.pipeline.model
    assert isinstance(model, MindConfig)
    capsules = replace(model.user.capsules, routing_start=RoutingStart.NORMAL, max_k=5)
    model = replace(model, user=replace(model.user, capsules=capsules))
    tower = untrained(replace(config, pipeline=replace(config.pipeline, model=model)))
    load_recorded_weights(tower.module, "mind")
    return tower


@pytest.mark.families
def test_a_package_gives_the_recorded_interests(tmp_path: Path) -> None:
    tower = tower_as_recorded("mind", "user_tower")
    program = trace_tower(tower, trace_inputs(rows_of(tower), tower.plan), _CPU)
    package = Package(compile_package(program, tmp_path / "aoti_model.pt2"))
    for batch in ("b1", "b2", "b3_empty", "b7", "b32"):
        inputs = read_batch("mind", f"user_tower__{batch}", "in")
        outputs = package({tensor.name: inputs[tensor.name] for tensor in tower.plan.inputs})
        recorded = read_batch("mind", f"user_tower__{batch}", "out")["user_tower_emb"]
        torch.testing.assert_close(outputs["user_tower_emb"], recorded, rtol=0, atol=1e-5)


def test_a_dense_package_that_routes_from_a_drawing_computes_what_eager_does(tmp_path: Path) -> None:
    tower = drawn()
    sparse, dense = split_tower(tower, max_batch_size=64)
    tensors = sparse.module(trace_inputs(rows_of(tower), tower.plan))
    package = Package(compile_package(trace_tower(dense, tensors, _CPU), tmp_path / "aoti_model.pt2"))
    names = set()
    for batch in verification_batches(rows_of(tower), tower.plan):
        names.add(batch.name)
        tensors = sparse.module(batch.inputs)
        torch.testing.assert_close(package(tensors), dense.module(tensors), rtol=0, atol=1e-5)
    assert {"batch_1", "all_histories_empty", "no_values"} <= names
