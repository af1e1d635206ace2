"""Rows of every feature kind encode to exactly the tensors that TorchEasyRec fed to its models."""

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import torch
from safetensors.torch import load_file

from exporter.config.features.read_features import read_features
from exporter.config.message import read_message
from exporter.config.schema import Feature
from exporter.data.encode import encode
from exporter.dims.plan import plan_dims

FIXTURES = Path(__file__).parents[2] / "fixtures" / "torcheasyrec"
INDICES = sorted(
    path
    for path in FIXTURES.glob("*/outputs/index*.json")
    if not path.parents[1].name.startswith("hstu_match")  # its item tower is served in another view
)


@cache
def _features(model: str) -> tuple[Feature, ...]:
    return read_features(read_message((FIXTURES / model / "pipeline.config").read_text(), model))


def _batches() -> Iterator[Any]:
    for path in INDICES:
        model = path.parents[1].name
        for batch in json.loads(path.read_text())["batches"]:
            if "inputs" in batch:
                yield pytest.param(model, batch, id=f"{model}-{batch['part']}-{batch['batch']}")


@pytest.mark.parametrize(("model", "batch"), list(_batches()))
def test_rows_of_every_kind_encode_to_the_recorded_tensors(model: str, batch: dict[str, Any]) -> None:
    recorded = load_file(FIXTURES / model / "outputs" / f"{batch['part']}__{batch['batch']}.in.safetensors")
    features = [feature for feature in _features(model) if f"{feature.name}.values" in batch["inputs"]]
    plan = plan_dims(features, max_batch_size=32)
    rows = pq.read_table(FIXTURES / batch["parquet"])
    tensors = encode(rows, features, plan, where=batch["parquet"])
    weighted = {f"{feature.name}.weights" for feature in features if feature.weighted}
    # TorchEasyRec gives weights of 1 to all ids where some are weighted.
    assert set(tensors) == {
        name for name in batch["inputs"] if not name.endswith(".weights") or name in weighted
    }
    for name, tensor in tensors.items():
        assert tensor.dtype == recorded[name].dtype, name
        assert torch.equal(tensor, recorded[name]), name
