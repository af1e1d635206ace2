"""Which outputs a task has, by what it was trained with."""

import pytest
import torch

from exporter.config.blocks.tasks import Loss, TaskConfig
from exporter.models.blocks.tasks import task_outputs


@pytest.mark.parametrize(
    ("loss", "num_class", "expected"),
    [
        (Loss.BINARY_CROSS_ENTROPY, 1, {"logits_t": (3,), "probs_t": (3,)}),
        (Loss.BINARY_FOCAL, 1, {"logits_t": (3,), "probs_t": (3,)}),
        (Loss.JRC, 2, {"logits_t": (3, 2), "probs_t": (3, 2), "probs1_t": (3,)}),
        (Loss.SOFTMAX_CROSS_ENTROPY, 2, {"logits_t": (3, 2), "probs_t": (3, 2), "probs1_t": (3,)}),
        (Loss.SOFTMAX_CROSS_ENTROPY, 4, {"logits_t": (3, 4), "probs_t": (3, 4)}),
        (Loss.L2, 1, {"y_t": (3,)}),
    ],
)
def test_a_loss_decides_the_outputs(loss: Loss, num_class: int, expected: dict[str, tuple[int, ...]]) -> None:
    task = TaskConfig(name="t", num_class=num_class, losses=(loss,))
    outputs = task_outputs((task,), {"t": torch.randn(3, num_class)})
    assert {name: tuple(tensor.shape) for name, tensor in outputs.items()} == expected


def test_the_second_class_is_the_probability_of_yes() -> None:
    task = TaskConfig(name="t", num_class=2, losses=(Loss.JRC,))
    outputs = task_outputs((task,), {"t": torch.tensor([[0.0, 0.0], [0.0, 1.0]])})
    assert outputs["probs1_t"].tolist() == pytest.approx([0.5, torch.sigmoid(torch.tensor(1.0)).item()])


def test_a_task_of_two_losses_has_the_outputs_of_both() -> None:
    task = TaskConfig(name="t", num_class=1, losses=(Loss.L2, Loss.BINARY_CROSS_ENTROPY))
    assert task_outputs((task,), {"t": torch.zeros(1, 1)}).keys() == {"y_t", "logits_t", "probs_t"}


def test_a_task_without_a_name_adds_none_to_its_outputs() -> None:
    task = TaskConfig(losses=(Loss.BINARY_CROSS_ENTROPY,))
    assert task_outputs((task,), {"": torch.zeros(2, 1)}).keys() == {"logits", "probs"}
