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
MODELS = ("multi_tower", "multi_tower_seq_kinds", "mask_net", "wide_and_deep")


@cache
def _features(model: str) -> tuple[Feature, ...]:
    return read_features(read_message((FIXTURES / model / "pipeline.config").read_text(), model))


def _batches() -> Iterator[Any]:
    for model in MODELS:
        for batch in json.loads((FIXTURES / model / "outputs" / "index.json").read_text())["batches"]:
            if "inputs" in batch:
                yield pytest.param(model, batch, id=f"{model}-{batch['part']}-{batch['batch']}")


@pytest.mark.parametrize(("model", "batch"), list(_batches()))
def test_rows_of_every_kind_encode_to_the_recorded_tensors(model: str, batch: dict[str, Any]) -> None:
    recorded = load_file(FIXTURES / model / "outputs" / f"{batch['part']}__{batch['batch']}.in.safetensors")
    plan = plan_dims(_features(model), max_batch_size=32)
    rows = pq.read_table(FIXTURES / batch["parquet"])
    tensors = encode(rows, _features(model), plan, where=batch["parquet"])
    assert sorted(tensors) == sorted(batch["inputs"])
    for name, tensor in tensors.items():
        assert tensor.dtype == recorded[name].dtype, name
        assert torch.equal(tensor, recorded[name]), name
