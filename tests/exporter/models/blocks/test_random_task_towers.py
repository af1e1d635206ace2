"""Towers of random tasks against their formula, and the names of what they give."""

import torch

from exporter.config.blocks.task_towers import TaskTowerConfig
from exporter.config.blocks.tasks import Loss, TaskConfig
from exporter.models.blocks.multi_task.task_towers import TaskTowers
from tests.exporter.models.formulas import draw_mlp, linear, optional_mlp, require_near, state_of
from tests.exporter.models.random_configs import Draw, over_random_configs


@over_random_configs
def test_a_tower_ends_in_the_tasks_numbers(draw: Draw) -> None:
    configs = tuple(_draw_task(draw, f"task{number}") for number in range(draw.randint(1, 4)))
    width, rows = draw.width(), draw.width(5)
    towers = draw.weights(TaskTowers(width, configs))
    inputs = [torch.randn(rows, width) for _ in configs]
    state = state_of(towers)
    with torch.no_grad():
        outputs = towers(inputs)
    for number, (config, x) in enumerate(zip(configs, inputs, strict=True)):
        hidden = optional_mlp(state, f"{number}.tower_mlp", config.mlp, x.double().numpy())
        numbers = linear(state, f"{number}.linear", hidden)
        name = "y" if Loss.L2 in config.task.losses else "logits"
        actual = outputs[f"{name}_{config.task.name}"]
        require_near(actual, numbers if config.task.num_class > 1 else numbers[:, 0])


def _draw_task(draw: Draw, name: str) -> TaskTowerConfig:
    loss, classes = draw.choice(
        [
            (Loss.BINARY_CROSS_ENTROPY, 1),
            (Loss.L2, 1),
            (Loss.JRC, 2),
            (Loss.SOFTMAX_CROSS_ENTROPY, draw.randint(2, 5)),
        ]
    )
    task = TaskConfig(name=name, num_class=classes, losses=(loss,))
    return TaskTowerConfig(task=task, mlp=draw_mlp(draw) if draw.flag() else None)
