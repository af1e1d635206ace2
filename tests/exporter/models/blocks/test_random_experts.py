"""Mixtures of experts, and networks that extract them, of random settings against their formulas."""

from collections.abc import Sequence

import numpy as np
import torch

from exporter.config.blocks.mmoe import MmoeConfig
from exporter.config.families.multi_task.ple import ExtractionConfig
from exporter.models.blocks.mmoe import Mmoe
from exporter.models.blocks.multi_task.extraction import ExtractionNet
from tests.exporter.models.formulas import (
    Array,
    State,
    draw_mlp,
    linear,
    mlp,
    optional_mlp,
    require_near,
    softmax,
    state_of,
)
from tests.exporter.models.random_configs import Draw, over_random_configs


@over_random_configs
def test_every_task_mixes_the_same_experts_by_its_gate(draw: Draw) -> None:
    config = MmoeConfig(
        expert_mlp=draw_mlp(draw),
        num_expert=draw.randint(1, 4),
        gate_mlp=draw_mlp(draw) if draw.flag() else None,
    )
    tasks, width = draw.randint(1, 3), draw.width()
    mmoe = draw.weights(Mmoe(width, config, tasks=tasks))
    x = torch.randn(draw.width(5), width)
    state, features = state_of(mmoe), x.double().numpy()
    experts = [mlp(state, f"expert_mlps.{e}", config.expert_mlp, features) for e in range(config.num_expert)]
    with torch.no_grad():
        actual = mmoe(x)
    assert len(actual) == tasks
    for task, mixed in enumerate(actual):
        read = optional_mlp(state, f"gate_mlps.{task}", config.gate_mlp, features)
        require_near(mixed, _mix(state, f"gate_finals.{task}", read, experts))


@over_random_configs
def test_a_stream_mixes_its_own_experts_and_the_shared_ones(draw: Draw) -> None:
    own, shared = draw.choice([(1, 0), (0, 1), (1, 1), (2, 1), (1, 3), (2, 2)])
    width = draw.width()
    config = ExtractionConfig(
        task_experts=own,
        task_expert_mlp=draw_mlp(draw, width=width),
        shared_experts=shared,
        shared_expert_mlp=draw_mlp(draw, width=width),
    )
    tasks, is_last, in_features = draw.randint(1, 3), draw.flag(), draw.width()
    net = draw.weights(ExtractionNet(in_features, config, tasks=tasks, is_last=is_last))
    rows = draw.width(5)
    streams = [torch.randn(rows, in_features) for _ in range(tasks)]
    common = torch.randn(rows, in_features)
    with torch.no_grad():
        new_streams, new_common = net(streams, common)
    expected, expected_common = _extract(
        state_of(net), config, [stream.double().numpy() for stream in streams], common.double().numpy()
    )
    for actual, stream in zip(new_streams, expected, strict=True):
        require_near(actual, stream)
    require_near(new_common, common.double().numpy() if is_last else expected_common)


def _extract(
    state: State, config: ExtractionConfig, streams: Sequence[Array], common: Array
) -> tuple[list[Array], Array]:
    """Return the new streams of the tasks, and the new shared one, if the network has a gate for it."""
    shared = [
        mlp(state, f"_shared_layers.{e}", config.shared_expert_mlp, common)
        for e in range(config.shared_experts)
    ]
    of_task = [
        [
            mlp(state, f"_task_layers.{task}.{e}", config.task_expert_mlp, stream)
            for e in range(config.task_experts)
        ]
        for task, stream in enumerate(streams)
    ]
    new = [
        _mix(state, f"_task_gates.{task}", stream, own + shared)
        for task, (stream, own) in enumerate(zip(streams, of_task, strict=True))
    ]
    if "_shared_gate.weight" not in state:
        return new, common
    everything = [expert for own in of_task for expert in own] + shared
    return new, _mix(state, "_shared_gate", common, everything)


def _mix(state: State, gate: str, read: Array, experts: Sequence[Array]) -> Array:
    """Return the experts' sum, weighted by the softmax of a gate's numbers."""
    shares = softmax(linear(state, gate, read))
    assert shares.shape[1] == len(experts)
    total: Array = np.einsum("be,ebd->bd", shares, np.stack(experts))
    return total
