"""The whole model, as it is trained and saved."""

from dataclasses import replace
from importlib import import_module

import pytest
import torch
from torch import nn

from exporter.config.families.registry import FAMILIES, SUPPORTED
from exporter.models.blocks.dropout import Dropout
from exporter.models.registry import build_model
from exporter.spec import TowerName
from exporter.towers.view import training_tower
from tests.exporter.models.recorded import (
    Batch,
    load_recorded_weights,
    pipeline_of,
    random_inputs,
    read_batch,
    recorded_state,
    recorded_tower,
    untrained,
)

ITEMS = torch.tensor([998, 1180, 1202, 1424, 57, 971, 295])  # of the batch items_b7


@pytest.fixture
def trainable() -> tuple[nn.Module, Batch]:
    """A fresh model, and inputs with three candidates."""
    inputs = read_batch("hstu_match", "user_tower__b7", "in")
    inputs |= {
        "cand_seq__video_id.values": ITEMS,
        "cand_seq__video_id.lengths": torch.ones(7, dtype=torch.long),
    }
    torch.manual_seed(0)
    return build_model(pipeline_of("hstu_match"), Dropout(input=0.5)), inputs


@pytest.mark.parametrize(
    ("model", "parts"),
    [("hstu_match", ["user", "item"]), ("hstu_match_desc", ["user", "item"]), ("dlrm_hstu", ["model"])],
)
def test_a_trained_model_has_exactly_the_checkpoints_names(model: str, parts: list[str]) -> None:
    recorded = {name for part in parts for name in recorded_state(model, part)}
    assert {f"model.{name}" for name in build_model(pipeline_of(model)).state_dict()} == recorded


@pytest.mark.parametrize("model", ["hstu_match", "hstu_match_desc"])
def test_the_whole_model_computes_what_its_towers_compute(model: str) -> None:
    batch = "b7" if model == "hstu_match" else "b7_desc"
    inputs = read_batch(model, f"user_tower__{batch}", "in")
    inputs |= {
        "cand_seq__video_id.values": ITEMS,
        "cand_seq__video_id.lengths": torch.ones(7, dtype=torch.long),
    }
    whole = build_model(pipeline_of(model)).eval()
    load_recorded_weights(whole, model)
    outputs = whole(inputs)
    expected = read_batch(model, f"user_tower__{batch}", "out") | read_batch(
        model, "item_tower__items_b7", "out"
    )
    for name, tensor in expected.items():
        torch.testing.assert_close(outputs[name], tensor, rtol=1e-5, atol=1e-5)


def test_the_item_tower_reads_a_jagged_candidate_in_the_training_view() -> None:
    tower = untrained(training_tower(pipeline_of("hstu_match"), TowerName.ITEM))
    load_recorded_weights(tower.module, "hstu_match")
    inputs = {"cand_seq__video_id.values": ITEMS, "cand_seq__video_id.lengths": torch.tensor([3, 0, 4])}
    expected = read_batch("hstu_match", "item_tower__items_b7", "out")["item_tower_emb"]
    torch.testing.assert_close(tower.module(inputs)["item_tower_emb"], expected)


def test_every_weight_that_is_used_learns(trainable: tuple[nn.Module, Batch]) -> None:
    model, inputs = trainable
    outputs = model.train()(inputs)
    (outputs["user_tower_emb"] @ outputs["item_tower_emb"].T).square().sum().backward()
    untouched = {name for name, weight in model.named_parameters() if weight.grad is None}
    assert {name.rsplit(".", 1)[1] for name in untouched} == {"_target_action_embedding_table"}


def test_dropout_is_active_only_while_training(trainable: tuple[nn.Module, Batch]) -> None:
    model, inputs = trainable
    once, twice = (model.train()(inputs)["user_tower_emb"] for _ in range(2))
    assert not torch.equal(once, twice)
    once, twice = (model.eval()(inputs)["user_tower_emb"] for _ in range(2))
    assert torch.equal(once, twice)


def test_a_tower_can_be_built_on_the_meta_device_and_filled() -> None:
    filled = recorded_tower("hstu_match", "user")
    with torch.device("meta"):
        tower = untrained(filled.config)
    tower.module.load_state_dict(filled.module.state_dict(), assign=True)
    inputs = read_batch("hstu_match", "user_tower__b2", "in")
    assert torch.equal(tower.module(inputs)["user_tower_emb"], filled.module(inputs)["user_tower_emb"])


def test_contextual_features_may_come_as_a_sequence_group() -> None:
    pipeline = pipeline_of("hstu_match")
    kind = pipeline.group("uih").kind
    groups = tuple(
        replace(group, kind=kind) if group.name == "contextual" else group for group in pipeline.groups
    )
    tower = untrained(training_tower(replace(pipeline, groups=groups), TowerName.USER))
    assert (
        "embedding_group.seq_emb_impls.__BASE__.ec_dict.16.embeddings.user_id_emb.weight"
        in tower.module.state_dict()
    )
    assert tower.module(random_inputs(tower, [2, 0]))["user_tower_emb"].isfinite().all()


@pytest.mark.parametrize("family", SUPPORTED)
def test_every_supported_family_has_its_module(family: str) -> None:
    module = import_module(f"exporter.models.{FAMILIES[family].kind}.{family}")
    assert callable(module.build_served) and callable(module.build_trained)
