"""Rows encode to exactly the tensors that TorchEasyRec fed to its models."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import torch
from safetensors.torch import load_file

from exporter.config.schema import Feature, FeatureKind, Sequence, TableConfig
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


_CLICKS = Sequence(name="click_seq", length=20, delim="|")
_BUYS = Sequence(name="buy_items", length=10, delim=";")
_IDS = TableConfig(name="ids", rows=1000, dim=8)


def _sparse(name: str, sequence: Sequence | None = None, *, weighted: bool = False) -> Feature:
    """A multi-valued feature of ids, in a sequence or not."""
    return Feature(
        name=name,
        bare_name=name,
        kind=FeatureKind.ID,
        sequence=sequence,
        table=_IDS,
        value_dim=0,
        weighted=weighted,
    )


def _dense(name: str, width: int) -> Feature:
    return Feature(name=name, bare_name=name, kind=FeatureKind.RAW, sequence=_CLICKS, value_dim=width)


_FEATURES = {
    "multi_tower_din": (
        _sparse("user_tags"),
        replace(_sparse("click_seq__item_id", _CLICKS), value_dim=1),
        _sparse("click_seq__tags", _CLICKS),
        _dense("click_seq__dur", 1),
        _dense("click_seq__vec", 2),
        replace(_sparse("buy_items", _BUYS), value_dim=1),
    ),
    "multi_tower_din_w": (
        _sparse("user_cats_w", weighted=True),  # maps
        _sparse("user_brands_w", weighted=True),  # lists of "id:weight"
        _sparse("item_kw_w", weighted=True),
        _sparse("click_seq__tags", _CLICKS),
    ),
}


@pytest.mark.parametrize("model", _FEATURES)
@pytest.mark.parametrize("batch", ["b7", "b3_empty"])
def test_several_values_per_event_and_weights_encode_to_the_recorded_tensors(model: str, batch: str) -> None:
    recorded = load_file(FIXTURES / model / "outputs" / f"model__{batch}.in.safetensors")
    features = _FEATURES[model]
    rows = pq.read_table(FIXTURES / "data" / "rec" / f"ref_{batch}.parquet")
    tensors = encode(rows, features, plan_dims(features, max_batch_size=32), where=batch)
    assert any(name.endswith(".key_lengths") for name in tensors)
    for name, tensor in tensors.items():
        assert tensor.dtype == recorded[name].dtype, name
        assert torch.equal(tensor, recorded[name]), name
