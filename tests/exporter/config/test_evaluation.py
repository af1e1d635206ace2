"""Labels, groups and weights are read from recorded configs, task by task."""

from pathlib import Path

import pytest

from exporter.config.evaluation import TaskKind, read_evaluation
from exporter.config.families.registry import FAMILIES

RECORDED = Path(__file__).parents[2] / "fixtures" / "torcheasyrec"


def tasks(model: str) -> list[tuple[str, TaskKind, str, str, int]]:
    evaluation = read_evaluation((RECORDED / model / "pipeline.config").read_text())
    return [(task.name, task.kind, task.output, task.label, task.bitmask) for task in evaluation.tasks]


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        ("deepfm", [("", TaskKind.BINARY, "probs", "clk", 0)]),
        ("rocket_launching", [("light", TaskKind.BINARY, "probs1_light", "clk", 0)]),
        (
            "ple",
            [
                ("ctr", TaskKind.BINARY, "probs_ctr", "clk", 0),
                ("stay", TaskKind.NUMBER, "y_stay", "stay", 0),
            ],
        ),
        (
            "dlrm_hstu",
            [
                ("is_click", TaskKind.BINARY, "probs_is_click", "cand_seq__action_weight", 1),
                ("is_like", TaskKind.BINARY, "probs1_is_like", "cand_seq__action_weight", 2),
                ("watchtime", TaskKind.NUMBER, "y_watchtime", "cand_seq__watch_time", 0),
            ],
        ),
        ("sid_rqvae", []),
    ],
)
def test_every_task_has_its_output_and_label(
    model: str, expected: list[tuple[str, TaskKind, str, str, int]]
) -> None:
    assert tasks(model) == expected


def test_every_recorded_config_can_be_read() -> None:
    configs = list(RECORDED.glob("*/pipeline.config"))
    assert len(configs) > len(FAMILIES)
    for config in configs:
        assert read_evaluation(config.read_text()).eval_input_path


def test_groups_and_weights_and_what_is_not_computed_are_read() -> None:
    text = (RECORDED / "deepfm" / "pipeline.config").read_text()
    more = 'metrics { grouped_auc { grouping_key: "user_id" } } metrics { xauc {} } '
    text = text.replace("metrics {", more + "metrics {", 1)
    text = text.replace('label_fields: "clk"', 'label_fields: "clk" sample_weight_fields: "w"')
    [task] = read_evaluation(text).tasks
    assert (task.group, task.weight, task.unsupported) == ("user_id", "w", ("xauc",))
