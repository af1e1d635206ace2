"""Mask nets: which widths blocks have, side by side and one behind the other."""

import pytest
import torch

from exporter.config.blocks.mask_net import MaskBlockConfig, MaskNetConfig
from exporter.config.blocks.mlp import MlpConfig
from exporter.models.blocks.mask_net import MaskNet

BLOCK = MaskBlockConfig(hidden_dim=5, reduction_ratio=0.5)


@pytest.mark.parametrize(("parallel", "widths", "last"), [(True, [8, 8, 8], 15), (False, [8, 5, 5], 5)])
def test_blocks_read_the_features_or_what_the_block_in_front_made(
    parallel: bool, widths: list[int], last: int
) -> None:
    net = MaskNet(8, MaskNetConfig(blocks=3, block=BLOCK, parallel=parallel))
    masks = [net.get_parameter(f"mask_blocks.{i}.mask_generator.0.weight") for i in range(3)]
    assert [tuple(mask.shape) for mask in masks] == [(width // 2, 8) for width in widths]
    assert (net(torch.randn(2, 8)).shape, net.out_features) == ((2, last), last)


def test_perceptrons_may_stand_on_top() -> None:
    config = MaskNetConfig(blocks=2, block=BLOCK, top_mlp=MlpConfig(hidden_units=(4, 3)))
    net = MaskNet(8, config)
    assert (net(torch.randn(2, 8)).shape, net.out_features) == ((2, 3), 3)


def test_the_middle_may_have_a_width_of_its_own() -> None:
    block = MaskBlockConfig(hidden_dim=5, aggregation_dim=7)
    net = MaskNet(8, MaskNetConfig(blocks=1, block=block))
    assert net.get_parameter("mask_blocks.0.mask_generator.2.weight").shape == (8, 7)
