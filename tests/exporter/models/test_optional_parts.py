"""Models over one group without the parts that a config may leave out."""

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from exporter.config.blocks.mask_net import MaskBlockConfig, MaskNetConfig
from exporter.config.blocks.mlp import MlpConfig
from exporter.config.families.multi_task.dc2vr import Dc2vrConfig
from exporter.models.ranking import RankingTower
from tests.exporter.models.rebuilt import predicted, rebuilt
from tests.exporter.models.recorded import pipeline_of, recorded_tower


def weight(module: nn.Module, name: str) -> Tensor:
    return module.get_parameter(name).detach()


def test_a_cross_network_may_stand_without_backbone_and_deep() -> None:
    module = rebuilt("dcn_v2", backbone=None, deep=None, cross_layers=0)
    x = torch.randn(3, 50)
    hidden = F.relu(F.linear(x, weight(module, "final.mlp.0.perceptron.0.weight"),
                             weight(module, "final.mlp.0.perceptron.0.bias")))  # fmt: skip
    expected = hidden @ weight(module, "output_mlp.weight").T
    torch.testing.assert_close(predicted(module, x)["logits"], expected[:, 0])


def test_the_light_net_may_stand_without_shared_layers() -> None:
    module = rebuilt("rocket_launching", share_mlp=None)
    assert weight(module, "light_mlp.mlp.0.perceptron.0.weight").shape == (16, 44)
    assert predicted(module, torch.randn(3, 44))["probs_light"].shape == (3, 2)


def test_the_booster_is_not_read() -> None:
    module, x = recorded_tower("rocket_launching", "model").module, torch.randn(3, 44)
    assert isinstance(module, RankingTower)
    before = predicted(module, x)
    booster = weight(module, "booster_linear.weight")
    kept = booster.clone()
    booster.fill_(torch.nan)
    after = predicted(module, x)
    booster.copy_(kept)
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_towers_read_the_group_where_there_are_no_extraction_networks() -> None:
    module, x = rebuilt("ple", extractions=()), torch.randn(3, 41)
    expected = F.linear(
        x, weight(module, "_task_tower.1.linear.weight"), weight(module, "_task_tower.1.linear.bias")
    )
    torch.testing.assert_close(predicted(module, x)["y_stay"], expected[:, 0])


def test_interventions_may_have_sources_straight_from_the_group() -> None:
    model = pipeline_of("dc2vr").model
    assert isinstance(model, Dc2vrConfig)
    tasks = tuple(replace(task, mlp=None) for task in model.tasks)
    module = rebuilt("dc2vr", bottom_mlp=None, mmoe=None, tasks=tasks)
    shape = weight(module, "intervention.stay.source_rotate_layer.parametrizations.weight.original").shape
    assert shape == (82, 5)
    assert all(output.isfinite().all() for output in predicted(module, torch.randn(3, 41)).values())


@pytest.mark.parametrize("parallel", [True, False])
def test_mask_blocks_may_be_parallel_or_serial(parallel: bool) -> None:
    net = MaskNetConfig(
        blocks=3,
        block=MaskBlockConfig(hidden_dim=7, aggregation_dim=4),
        top_mlp=MlpConfig(hidden_units=(5,)),
        parallel=parallel,
    )
    module = rebuilt("mask_net", mask_net=net)
    top = weight(module, "mask_net_layer.top_mlp.mlp.0.perceptron.0.weight")
    assert top.shape == (5, 21 if parallel else 7)
    assert predicted(module, torch.randn(3, 72))["logits"].shape == (3,)
