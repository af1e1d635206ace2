"""Read how a model is evaluated: its labels, groups and weights, task by task, from its pipeline config."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol

from exporter.config.message import read_message
from exporter.config.pb.data_pb2 import DataConfig
from exporter.config.pb.loss_pb2 import LossConfig
from exporter.config.pb.metric_pb2 import MetricConfig
from exporter.config.pb.model_pb2 import ModelConfig

_OF_ONE_NUMBER = {"l2_loss"}


class TaskKind(StrEnum):
    """Kind of answer that a task gives, by the loss it was trained with."""

    BINARY = "binary"
    CLASSES = "classes"
    NUMBER = "number"


@dataclass(frozen=True, kw_only=True)
class EvaluatedTask:
    """One task of a ranking model with the columns that its answers are judged by."""

    name: str  # empty for the only task of a single-task model
    kind: TaskKind
    output: str  # the package's output
    label: str  # column of the labels; empty: the config names none
    bitmask: int = 0  # a label is positive if it has one of these bits; 0: labels are used as they are
    group: str = ""  # column of the groups of grouped_auc; empty: none
    weight: str = ""  # column of sample weights; empty: none
    unsupported: tuple[str, ...] = ()  # metrics of the config that are not computed here


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """The rows and columns that a model is evaluated on."""

    eval_input_path: str
    tasks: tuple[EvaluatedTask, ...]  # empty: of a family that is not trained to rank
    label: str  # first of the label fields; empty: none
    item_id: str  # column by which the negative sampler knows an item; empty: none


_COMPUTED = {
    "auc",
    "grouped_auc",
    "normalized_entropy",
    "mean_absolute_error",
    "mean_squared_error",
    "accuracy",
    "recall_at_k",
}


def read_evaluation(text: str, *, where: str = "config") -> Evaluation:
    """Read the labels, groups and weights of each task of a pipeline config.

    Raises:
        InvalidPipelineConfig: the text does not parse.
    """
    message = read_message(text, where)
    data, model = message.data_config, message.model_config
    sampler = data.WhichOneof("sampler")
    return Evaluation(
        eval_input_path=message.eval_input_path,
        tasks=tuple(_tasks(model, data)),
        label=next(iter(data.label_fields), ""),
        item_id=(sampler and str(getattr(data, sampler).item_id_field)) or "",
    )


class _Task(Protocol):
    """Fields that every message of a task has."""

    label_name: str
    num_class: int

    @property
    def losses(self) -> Iterable[LossConfig]: ...

    @property
    def metrics(self) -> Iterable[MetricConfig]: ...


def _tasks(model: ModelConfig, data: DataConfig) -> Iterator[EvaluatedTask]:
    """Yield the tasks of a multi-task model, or the one that a single-task model's losses describe."""
    kind = model.WhichOneof("model")
    inner: Any = getattr(model, kind) if kind else None
    weight = next(iter(data.sample_weight_fields), "")
    if hasattr(inner, "task_towers"):
        for tower in inner.task_towers:
            named = str(getattr(tower, "sample_weight_name", "")) or weight
            yield from _task(tower, str(tower.tower_name), weight=named)
    elif hasattr(inner, "fusion_mtl_tower"):
        for task in inner.fusion_mtl_tower.task_configs:
            yield from _task(task, str(task.task_name), weight=weight, bitmask=int(task.task_bitmask))
    else:
        suffix = "light" if kind == "rocket_launching" else ""
        label = next(iter(data.label_fields), "")
        yield from _make(suffix, label, model.num_class, model.losses, model.metrics, weight=weight)


def _task(message: _Task, name: str, *, weight: str, bitmask: int = 0) -> Iterator[EvaluatedTask]:
    label, classes = str(message.label_name), int(message.num_class)
    yield from _make(name, label, classes, message.losses, message.metrics, weight=weight, bitmask=bitmask)


def _make(
    name: str,
    label: str,
    num_class: int,
    losses: Iterable[LossConfig],
    metrics: Iterable[MetricConfig],
    *,
    weight: str,
    bitmask: int = 0,
) -> Iterator[EvaluatedTask]:
    """Yield the task, or nothing where its losses give no answers that labels could be held against."""
    kinds = [loss.WhichOneof("loss") for loss in losses]
    suffix = f"_{name}" if name else ""
    named = {metric.WhichOneof("metric") or "": metric for metric in metrics}
    if not kinds or None in kinds:
        return
    if set(kinds) <= _OF_ONE_NUMBER:
        kind, output = TaskKind.NUMBER, "y"
    elif num_class == 1:
        kind, output = TaskKind.BINARY, "probs"
    else:
        kind, output = (TaskKind.BINARY, "probs1") if num_class == 2 else (TaskKind.CLASSES, "probs")
    grouped = named.get("grouped_auc")
    yield EvaluatedTask(
        name=name,
        kind=kind,
        output=output + suffix,
        label=label,
        bitmask=bitmask,
        group=grouped.grouped_auc.grouping_key if grouped else "",
        weight=weight,
        unsupported=tuple(sorted(set(named) - _COMPUTED - {""})),
    )
