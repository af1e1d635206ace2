"""Rows encode to exactly the tensors that TorchEasyRec fed to its models."""

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import torch
from safetensors.torch import load_file

from exporter.config.schema import Feature
from exporter.data.encode import encode
from exporter.dims.plan import plan_dims

FIXTURES = Path(__file__).parents[2] / "fixtures" / "torcheasyrec"
BATCHES = [
    pytest.param(model, batch, id=f"{model}-{batch['batch']}")
    for model in ("hstu_match", "hstu_match_desc")
    for batch in json.loads((FIXTURES / model / "outputs" / "index.json").read_text())["batches"]
]


@pytest.mark.parametrize(("model", "batch"), BATCHES)
def test_rows_encode_to_the_recorded_tensors(
    model: str, batch: dict[str, Any], tower_features: dict[tuple[str, str], tuple[Feature, ...]]
) -> None:
    recorded = load_file(FIXTURES / model / "outputs" / f"{batch['part']}__{batch['batch']}.in.safetensors")
    features = tower_features[model, batch["part"].removesuffix("_tower")]
    plan = plan_dims(features, max_batch_size=32)
    tensors = encode(pq.read_table(FIXTURES / batch["parquet"]), features, plan, where=batch["parquet"])
    assert list(tensors) == sorted(batch["inputs"])
    for name, tensor in tensors.items():
        assert tensor.dtype == recorded[name].dtype, name
        assert torch.equal(tensor, recorded[name]), name
