"""ultra_hstu joins its transducers, whatever they are; behind them is a plain formula."""

from dataclasses import fields, replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from exporter.config.families.multi_task.dlrm_hstu import DlrmHstuConfig
from exporter.config.families.multi_task.ultra_hstu import UltraHstuConfig
from exporter.config.hstu.encoder import HstuConfig, PostprocessorConfig, PostprocessorKind
from exporter.config.schema import FeatureGroup, PipelineConfig
from exporter.models.blocks.dropout import Dropout
from exporter.models.multi_task.dlrm_hstu import DlrmHstu
from exporter.spec import TowerName
from exporter.towers.tower import Tower
from exporter.towers.view import training_tower
from tests.exporter.models.random_configs import Draw, over_random_configs
from tests.exporter.models.recorded import (
    Batch,
    load_recorded_weights,
    pipeline_of,
    random_inputs,
    read_batch,
    untrained,
)

HISTORIES = ("uih_click", "uih_view")
PARTS = ("", "_action", "_watchtime", "_timestamp")


def recorded() -> tuple[PipelineConfig, UltraHstuConfig]:
    pipeline = pipeline_of("ultra_hstu")
    assert isinstance(pipeline.model, UltraHstuConfig)
    return pipeline, pipeline.model


def drawn_transducer(draw: Draw, name: str) -> HstuConfig:
    _, model = recorded()
    base, layers = draw.choice(model.transducers), draw.randint(1, 3)
    truncates = layers > 1 and draw.flag()
    stu = replace(
        base.stu,
        embedding_dim=draw.width(),
        num_heads=draw.randint(1, 3),
        hidden_dim=draw.width(5),
        attention_dim=draw.width(5),
        use_group_norm=draw.flag(),
        max_attn_len=draw.choice((0, 3)),
        sla_k1=draw.choice((0, 4)),
        sla_k2=draw.choice((0, 2)),
    )
    kind = draw.choice((PostprocessorKind.L2NORM, PostprocessorKind.LAYERNORM, base.postprocessor.kind))
    return replace(
        base,
        name=name,
        stu=stu,
        num_layers=layers,
        postprocessor=base.postprocessor
        if kind is base.postprocessor.kind
        else PostprocessorConfig(kind=kind),
        attn_truncation_split_layer=1 if truncates else 0,
        attn_truncation_tail_len=draw.randint(1, 6) if truncates else 0,
    )


def groups_for(draw: Draw, transducers: tuple[HstuConfig, ...]) -> tuple[FeatureGroup, ...]:
    """Return the groups that all transducers share, and those of each, over one of the recorded histories."""
    pipeline, _ = recorded()
    shared = [group for group in pipeline.groups if not group.name.startswith(HISTORIES)]
    for hstu in transducers:
        history = draw.choice(HISTORIES)
        shared += [replace(pipeline.group(history + part), name=hstu.history + part) for part in PARTS]
    return tuple(shared)


def alone(tower: Tower, model: UltraHstuConfig, number: int) -> nn.Module:
    """Return a transducer of the tower as the only one of another model, with its weights."""
    [hstu] = model.transducers[number : number + 1]
    single = replace(model, transducers=(hstu,))
    built = DlrmHstu(replace(tower.config.pipeline, model=single), Dropout()).eval()
    several = len(model.transducers) > 1
    prefix = f"_hstu_transducer._transducers.{number}." if several else "_hstu_transducer."
    weights = tower.module.state_dict()
    own = {name.removeprefix(prefix): value for name, value in weights.items() if name.startswith(prefix)}
    built._hstu_transducer.load_state_dict(own, strict=True)
    return built._hstu_transducer


def swish_norm(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    centred = x - x.mean(dim=1, keepdim=True)
    variance = centred.square().mean(dim=1, keepdim=True)
    return x * torch.sigmoid(centred / torch.sqrt(variance + 1e-5) * weight + bias)


def ranked(weights: Batch, users_MD: Tensor, items_MU: Tensor) -> tuple[Tensor, Tensor]:
    """Return the numbers of both recorded tasks by their formula, from joined users and candidates."""

    def linear(name: str, x: Tensor) -> Tensor:
        return x @ weights[f"{name}.weight"].T + weights[f"{name}.bias"]

    def norm(name: str, x: Tensor) -> Tensor:
        return F.layer_norm(x, x.shape[1:], weights[f"{name}.weight"], weights[f"{name}.bias"])

    mlp, tower = "_item_embedding_mlp", "_multitask_module"
    hidden = swish_norm(linear(f"{mlp}.0", items_MU), weights[f"{mlp}.1.weight"], weights[f"{mlp}.1.bias"])
    fused = users_MD * norm(f"{mlp}.3", linear(f"{mlp}.2", hidden))
    perceptron = f"{tower}.tower_mlp.mlp.0.perceptron"
    fused = norm(f"{perceptron}.1", linear(f"{perceptron}.0", fused))
    click, watch = linear(f"{tower}.linear", fused * torch.sigmoid(fused)).unbind(dim=1)
    return click, watch


@over_random_configs
def test_candidates_are_ranked_by_all_transducers_in_order(draw: Draw) -> None:
    pipeline, recorded_model = recorded()
    count = draw.randint(1, 3)
    names = [f"history{number}" for number in range(count)] if count > 1 else [draw.choice(("", "history"))]
    model = replace(recorded_model, transducers=tuple(drawn_transducer(draw, name) for name in names))
    pipeline = replace(pipeline, model=model, groups=groups_for(draw, model.transducers))
    tower = untrained(training_tower(pipeline, TowerName.MODEL))
    draw.weights(tower.module)
    rows = draw.randint(1, 4)
    inputs = random_inputs(
        tower, [draw.randint(0, 9) for _ in range(rows)], [draw.randint(0, 3) for _ in range(rows)]
    )
    with torch.no_grad():
        outputs = tower.module(inputs)
        embedded = tower.served.lookup(inputs)
        users = [alone(tower, model, number)(embedded) for number in range(count)]
        joined = torch.cat(users, dim=1)
        click, watch = ranked(tower.module.state_dict(), joined, embedded["candidate.sequence"])
    assert joined.shape[1] == sum(hstu.stu.embedding_dim for hstu in model.transducers)
    torch.testing.assert_close(outputs["logits_is_click"], click, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(outputs["probs_is_click"], torch.sigmoid(click), rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(outputs["y_watchtime"], watch, rtol=1e-4, atol=1e-4)


def test_one_transducer_without_a_name_is_dlrm_hstu() -> None:
    pipeline = pipeline_of("dlrm_hstu")
    assert isinstance(pipeline.model, DlrmHstuConfig)
    settings = {field.name: getattr(pipeline.model, field.name) for field in fields(DlrmHstuConfig)}
    model = UltraHstuConfig(**{**settings, "family": "ultra_hstu"})
    tower = untrained(training_tower(replace(pipeline, model=model), TowerName.MODEL))
    load_recorded_weights(tower.module, "dlrm_hstu")
    with torch.no_grad():
        outputs = tower.module(read_batch("dlrm_hstu", "model__b7", "in"))
    for name, expected in read_batch("dlrm_hstu", "model__b7", "out").items():
        torch.testing.assert_close(outputs[name], expected, rtol=1e-5, atol=1e-5)
