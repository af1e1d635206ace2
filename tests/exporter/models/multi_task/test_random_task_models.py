"""Whole models of several tasks, of random configs read from text, against their formulas in numpy."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tests.exporter.models.formulas import softmax
from tests.exporter.models.random_configs import Draw, over_random_configs
from tests.exporter.models.rank.random_rankings import (
    Array,
    RandomMlp,
    RandomModel,
    draw_features,
    draw_mlp,
    require_equal,
    some,
)


@dataclass(frozen=True, kw_only=True)
class RandomTask:
    """A task as a config writes it; `more` are its other fields."""

    name: str
    classes: int
    mlp: RandomMlp | None
    more: str = ""

    def text(self) -> str:
        loss = "binary_cross_entropy" if self.classes == 1 else "softmax_cross_entropy"
        mlp = self.mlp.text("mlp") if self.mlp else ""
        return (
            f'task_towers {{ tower_name: "{self.name}" label_name: "clk" num_class: {self.classes} '
            f"losses {{ {loss} {{}} }} {mlp} {self.more} }}"
        )


def draw_model(draw: Draw, *groups: str) -> RandomModel:
    features = draw_features(draw)
    return RandomModel(
        features=features,
        groups={name: some(draw, features) for name in groups},
        has_dropout=draw.flag(),
    )


def draw_tasks(draw: Draw) -> list[RandomTask]:
    return [
        RandomTask(
            name=f"task{number}",
            classes=draw.randint(1, 3),
            mlp=draw_mlp(draw) if draw.flag() else None,
        )
        for number in range(draw.randint(1, 3))
    ]


def require_logits(outputs: Mapping[str, Array], expected: Mapping[str, Array]) -> None:
    """Require the logits of exactly these tasks."""
    assert {name for name in outputs if name.startswith("logits")} == {f"logits_{name}" for name in expected}
    for name, numbers in expected.items():
        require_equal(outputs[f"logits_{name}"].reshape(numbers.shape), numbers)


def texts(tasks: Sequence[RandomTask]) -> str:
    return " ".join(task.text() for task in tasks)


def tower(model: RandomModel, number: int, task: RandomTask, x: Array) -> Array:
    """Return the numbers of the task whose tower has this number."""
    hidden = model.mlp(x, f"_task_tower.{number}.tower_mlp", task.mlp) if task.mlp else x
    return model.linear(hidden, f"_task_tower.{number}.linear")


def mix(shares: Array, experts: Sequence[Array]) -> Array:
    mixed: Array = np.einsum("be,ebd->bd", softmax(shares), np.stack(experts))
    return mixed


@dataclass(frozen=True, kw_only=True)
class RandomExperts:
    """Experts and gates as a config writes them."""

    expert: RandomMlp
    gate: RandomMlp | None
    number: int

    @classmethod
    def drawn(cls, draw: Draw) -> "RandomExperts":
        gate = draw_mlp(draw) if draw.flag() else None
        return cls(expert=draw_mlp(draw), gate=gate, number=draw.randint(1, 3))

    def text(self) -> str:
        gate = self.gate.text("gate_mlp") if self.gate else ""
        return f"{self.expert.text('expert_mlp')} {gate} num_expert: {self.number}"

    def mixed(self, model: RandomModel, x: Array, task: int) -> Array:
        """Return the mixture for a task."""
        experts = [model.mlp(x, f"mmoe.expert_mlps.{e}", self.expert) for e in range(self.number)]
        read = model.mlp(x, f"mmoe.gate_mlps.{task}", self.gate) if self.gate else x
        return mix(model.linear(read, f"mmoe.gate_finals.{task}"), experts)


@over_random_configs
def test_mmoe_gives_every_tower_a_mixture(draw: Draw) -> None:
    model, tasks, experts = draw_model(draw, "all"), draw_tasks(draw), RandomExperts.drawn(draw)
    outputs = model.outputs(draw, f"mmoe {{ {experts.text()} {texts(tasks)} }}")
    x = model.group("all")
    require_logits(
        outputs,
        {
            task.name: tower(model, number, task, experts.mixed(model, x, number))
            for number, task in enumerate(tasks)
        },
    )


@over_random_configs
def test_ple_hands_streams_from_network_to_network(draw: Draw) -> None:
    model, tasks = draw_model(draw, "all"), draw_tasks(draw)
    networks = []
    for _ in range(draw.randint(0, 3)):
        own, shared = draw.choice([(1, 0), (0, 1), (1, 1), (2, 1), (1, 2)])
        width = draw.width()
        networks.append((own, draw_mlp(draw, last=width), shared, draw_mlp(draw, last=width)))
    text = " ".join(
        f'extraction_networks {{ network_name: "n" expert_num_per_task: {own} share_num: {shared} '
        f"{own_mlp.text('task_expert_net')} {shared_mlp.text('share_expert_net')} }}"
        for own, own_mlp, shared, shared_mlp in networks
    )
    outputs = model.outputs(draw, f"ple {{ {text} {texts(tasks)} }}")
    common = model.group("all")
    streams = [common] * len(tasks)
    for level, (own, own_mlp, shared, shared_mlp) in enumerate(networks):
        name = f"_extraction_nets.{level}"
        of_all = [model.mlp(common, f"{name}._shared_layers.{e}", shared_mlp) for e in range(shared)]
        of_task = [
            [model.mlp(stream, f"{name}._task_layers.{t}.{e}", own_mlp) for e in range(own)]
            for t, stream in enumerate(streams)
        ]
        streams = [
            mix(model.linear(stream, f"{name}._task_gates.{t}"), of_task[t] + of_all)
            for t, stream in enumerate(streams)
        ]
        if level < len(networks) - 1:
            everything = [expert for experts in of_task for expert in experts] + of_all
            common = mix(model.linear(common, f"{name}._shared_gate"), everything)
    require_logits(
        outputs,
        {task.name: tower(model, t, task, streams[t]) for t, task in enumerate(tasks)},
    )


@over_random_configs
def test_pepnet_gates_features_and_layers(draw: Draw) -> None:
    optional = [group for group in ("domain", "uia") if draw.flag()]
    model, tasks = draw_model(draw, "all", *optional), draw_tasks(draw)
    units, domains = draw.widths(), draw.randint(0, 3)
    hidden = f"epnet_hidden_unit: {draw.width()}" if draw.flag() else ""
    by_domain = f'domain_input_name: "d" task_domain_num: {domains}' if domains else ""
    outputs = model.outputs(
        draw,
        f"pepnet {{ {hidden} epnet_gamma: 1.5 ppnet_gamma: 0.75 {by_domain} ppnet_activation: 'nn.Tanh' "
        f"{' '.join(f'ppnet_hidden_units: {width}' for width in units)} {texts(tasks)} }}",
    )
    x = model.group("all")
    if "domain" in optional:
        x = x * _gate(model, "epnet.gate_nu", np.concatenate([model.group("domain"), x], 1), 1.5)
    expected: dict[str, Array] = {}
    for t, task in enumerate(tasks):
        read = x
        if "uia" in optional:
            known = np.concatenate([model.group("uia"), x], 1)
            for depth in range(len(units)):
                number = t * len(units) + depth
                read = np.tanh(model.linear(read, f"ppnet.linears.{number}"))
                read = read * _gate(model, f"ppnet.gate_nus.{number}", known, 0.75)
        if domains:
            expected |= {
                f"{task.name}_{k}": tower(model, t * domains + k, task, read) for k in range(domains)
            }
        else:
            expected[task.name] = tower(model, t, task, read)
    require_logits(outputs, expected)


def _gate(model: RandomModel, name: str, x: Array, gamma: float) -> Array:
    hidden = np.maximum(model.linear(x, f"{name}.dense_layers.0"), 0)
    return gamma / (1 + np.exp(-model.linear(hidden, f"{name}.dense_layers.2")))
