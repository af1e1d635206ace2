"""The last step over encoded elements."""

import torch
from torch import Tensor

from exporter.config.hstu.encoder import PostprocessorConfig, PostprocessorKind
from exporter.models.hstu.postprocessor import build_postprocessor


def test_l2norm_leaves_zeros_alone() -> None:
    module = build_postprocessor(PostprocessorConfig(kind=PostprocessorKind.L2NORM), 2)
    assert module(torch.tensor([[3.0, 4.0], [0.0, 0.0]]), torch.zeros(2)).tolist() == [
        [torch.tensor(0.6).item(), torch.tensor(0.8).item()],
        [0.0, 0.0],
    ]


def test_layernorm_has_the_peers_names() -> None:
    module = build_postprocessor(PostprocessorConfig(kind=PostprocessorKind.LAYERNORM), 2)
    assert module.state_dict().keys() == {"_layer_norm.weight", "_layer_norm.bias"}


def test_the_hour_is_eagers_floor_just_before_a_full_one() -> None:
    config = PostprocessorConfig(
        kind=PostprocessorKind.TIMESTAMP_LAYERNORM, period_units=(3600,), units_per_period=(24,)
    )
    module = build_postprocessor(config, 2)
    combined: list[Tensor] = []
    combiner = module.get_submodule("_time_feature_combiner")
    combiner.register_forward_hook(lambda _module, inputs, _output: combined.append(inputs[0]))
    seconds = torch.arange(1_650_000_000, 1_651_000_000, 128).float()
    module(torch.zeros(len(seconds), 2), seconds)
    hours = torch.remainder(torch.div(seconds, 3600, rounding_mode="floor"), 24)
    torch.testing.assert_close(combined[0][:, 2], torch.cos(hours / 24 * 2 * 3.14))
