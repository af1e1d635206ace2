"""Whole models whose tasks read earlier ones, of random configs read from text, against formulas in numpy."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from tests.exporter.models.multi_task.test_random_task_models import (
    RandomExperts,
    RandomTask,
    draw_model,
    draw_tasks,
    require_logits,
    texts,
)
from tests.exporter.models.random_configs import Draw, over_random_configs
from tests.exporter.models.rank.random_rankings import Array, RandomMlp, RandomModel, draw_mlp

Shared = tuple[RandomMlp | None, RandomExperts | None]


def draw_shared(draw: Draw) -> Shared:
    """Draw the layers and the experts that all tasks share."""
    return draw_mlp(draw) if draw.flag() else None, RandomExperts.drawn(draw) if draw.flag() else None


def shared_text(shared: Shared) -> str:
    bottom, experts = shared
    return (bottom.text("bottom_mlp") if bottom else "") + (experts.text() if experts else "")


def own_outputs(model: RandomModel, shared: Shared, tasks: list[RandomTask]) -> dict[str, Array]:
    """Return every task's hidden output before it reads other tasks."""
    bottom, experts = shared
    x = model.group("all")
    x = model.mlp(x, "bottom_mlp", bottom) if bottom else x
    hidden = {}
    for number, task in enumerate(tasks):
        read = experts.mixed(model, x, number) if experts else x
        hidden[task.name] = model.mlp(read, f"task_mlps.{task.name}", task.mlp) if task.mlp else read
    return hidden


def heads(model: RandomModel, hidden: Mapping[str, Array]) -> dict[str, Array]:
    return {
        name: model.linear(x, f"task_outputs.{number}") for number, (name, x) in enumerate(hidden.items())
    }


@over_random_configs
def test_dbmtl_reads_earlier_tasks_through_an_mlp(draw: Draw) -> None:
    model, shared = draw_model(draw, "all"), draw_shared(draw)
    tasks, relations = [], {}
    for number, task in enumerate(draw_tasks(draw)):
        sources = [f"task{earlier}" for earlier in range(number) if draw.flag()]
        if draw.flag():
            relations[task.name] = (draw_mlp(draw), sources)
            relation = relations[task.name][0].text("relation_mlp")
            names = " ".join(f'relation_tower_names: "{name}"' for name in sources)
            tasks.append(replace(task, more=f"{relation} {names}"))
        else:
            tasks.append(task)
    outputs = model.outputs(draw, f"dbmtl {{ {shared_text(shared)} {texts(tasks)} }}")
    hidden = own_outputs(model, shared, tasks)
    for name in hidden:
        if name in relations:
            mlp, sources = relations[name]
            read = np.concatenate([hidden[name], *(hidden[source] for source in sources)], 1)
            hidden[name] = model.mlp(read, f"relation_mlps.{name}", mlp)
    require_logits(outputs, heads(model, hidden))


@over_random_configs
def test_dc2vr_adds_the_difference_in_the_common_space(draw: Draw) -> None:
    model, shared = draw_model(draw, "all"), draw_shared(draw)
    tasks, relations = [], {}
    for number, task in enumerate(draw_tasks(draw)):
        more = ""
        if number and draw.flag():
            relations[task.name] = draw.sample(
                [f"task{earlier}" for earlier in range(number)], 1 + (number > 1)
            )
            names = " ".join(f'intervention_tower_names: "{name}"' for name in relations[task.name])
            more = f"low_rank_dim: {draw.randint(1, 2)} {names}"
        tasks.append(replace(task, more=more, mlp=draw_mlp(draw, last=draw.randint(3, 9))))
    outputs = model.outputs(draw, f"dc2vr {{ {shared_text(shared)} {texts(tasks)} }}")
    hidden = own_outputs(model, shared, tasks)
    for name, sources in relations.items():
        base, source = (
            _rotation(model, f"intervention.{name}.{side}_rotate_layer") for side in ("base", "source")
        )
        read = np.concatenate([hidden[other] for other in sources], 1)
        hidden[name] = (hidden[name] @ base - read @ source) @ base.T + hidden[name]
    require_logits(outputs, heads(model, hidden))


def _rotation(model: RandomModel, name: str) -> Array:
    """Return the base times the product of all reflections, whose columns have the signs of the diagonal."""
    original = model.weights[f"{name}.parametrizations.weight.original"]
    product = np.eye(len(original))
    for column in range(original.shape[1]):
        vector = original[:, column] * (np.arange(len(original)) > column)
        vector[column] = 1
        product -= 2 / np.dot(vector, vector) * np.outer(product @ vector, vector)
    signed = product[:, : original.shape[1]] * np.trunc(np.diag(original))
    rotation: Array = model.weights[f"{name}.parametrizations.weight.0.base"] @ signed
    return rotation
