"""dssm_v2 and tdm over random settings against plain formulas, and what the recorded models do not have."""

import re

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from exporter.config.parse import parse_pipeline_config
from exporter.dims.plan import plan_dims
from exporter.models.registry import build_model, build_tower
from exporter.spec import TowerName
from exporter.towers.tower import Tower
from exporter.towers.view import tower_configs
from tests.exporter.models.random_configs import Draw, over_random_configs
from tests.exporter.models.recorded import FIXTURES

Array = NDArray[np.float64]

_ID = 'feature_configs {{ id_feature {{ feature_name: "{name}" expression: "user:{name}" num_buckets: {rows} '
_ID += 'embedding_dim: {dim} embedding_name: "{table}" value_dim: 1 }} }}\n'
_RAW = 'feature_configs {{ raw_feature {{ feature_name: "{name}" expression: "user:{name}" '
_RAW += "value_dim: {dim} }} }}\n"


def served(text: str, name: TowerName, draw: Draw) -> Tower:
    [config] = tower_configs(parse_pipeline_config(text), (name,))
    tower = build_tower(config, plan_dims(config.pipeline.features, max_batch_size=64))
    draw.weights(tower.module)
    return tower


def _mlp(name: str, widths: tuple[int, ...]) -> str:
    return f"{name} {{ {' '.join(f'hidden_units: {width}' for width in widths)} }}"


def _linear(x: Array, state: dict[str, Array], name: str) -> Array:
    y: Array = x @ state[f"{name}.weight"].T + state[f"{name}.bias"]
    return y


def _dense(x: Array, state: dict[str, Array], name: str, layers: int) -> Array:
    for layer in range(layers):
        x = np.maximum(_linear(x, state, f"{name}.mlp.{layer}.perceptron.0"), 0)
    return x


def _state(tower: Tower) -> dict[str, Array]:
    return {name: weight.double().numpy() for name, weight in tower.module.state_dict().items()}


def _run(tower: Tower, inputs: dict[str, Tensor]) -> dict[str, Tensor]:
    with torch.no_grad():
        outputs: dict[str, Tensor] = tower.module(inputs)
    return outputs


@over_random_configs
def test_each_tower_of_dssm_v2_is_an_mlp_over_its_group(draw: Draw) -> None:
    rows, dim, dense, out = draw.width(), draw.width(), draw.width(), draw.choice([0, draw.width()])
    layers, last, cosine = draw.widths(), draw.width(), draw.flag()
    towers = " ".join(
        f'{name}_tower {{ input: "{name}" {_mlp("mlp", (*layers, last))} }}' for name in ("user", "item")
    )
    groups = "".join(
        f'feature_groups {{ group_name: "{name}" feature_names: "{name}_x" feature_names: "{name}_id" '
        "group_type: DEEP }\n"
        for name in ("user", "item")
    )
    text = "".join(
        _RAW.format(name=f"{name}_x", dim=dense)
        + _ID.format(name=f"{name}_id", rows=rows, dim=dim, table="both")
        for name in ("user", "item")
    )
    similarity = "COSINE" if cosine else "INNER_PRODUCT"
    text += f"model_config {{ {groups} dssm_v2 {{ {towers} output_dim: {out} similarity: {similarity} }} }}"
    name = draw.choice([TowerName.USER, TowerName.ITEM])
    tower = served(text, name, draw)
    count = draw.randint(1, 5)
    inputs = {
        f"{name}_id.values": torch.randint(rows, (count,)),
        f"{name}_id.lengths": torch.ones(count, dtype=torch.long),
        f"{name}_x.values": torch.randn(count, dense),
    }
    state = _state(tower)
    table = state["embedding_group.emb_impls.__BASE__.ebc.embedding_bags.both.weight"]
    x = np.hstack([inputs[f"{name}_x.values"].double().numpy(), table[inputs[f"{name}_id.values"].numpy()]])
    expected = _dense(x, state, f"{name}_tower.mlp", len(layers) + 1)
    if out:
        expected = _linear(expected, state, f"{name}_tower.output")
    if cosine:
        expected = expected / np.maximum(np.linalg.norm(expected, axis=1, keepdims=True), 1e-12)
    actual = _run(tower, inputs)
    assert actual.keys() == {f"{name}_tower_emb"}
    np.testing.assert_allclose(actual[f"{name}_tower_emb"], expected, rtol=1e-4, atol=1e-5)


@over_random_configs
def test_tdm_scores_windows_of_the_history_and_embeds_its_query(draw: Draw) -> None:
    rows, dim, deep = draw.width(), draw.width(), draw.width()
    windows, hidden, final = draw.widths(4), draw.widths(2), draw.widths(2)
    of_history, of_query = dim + 1, dim
    text = _RAW.format(name="age", dim=deep) + _ID.format(name="node", rows=rows, dim=dim, table="t")
    text += (
        'feature_configs { sequence_feature { sequence_name: "seq" sequence_length: 9 sequence_delim: "|" '
        f'features {{ id_feature {{ feature_name: "node" expression: "user:node" num_buckets: {rows} '
        f'embedding_dim: {dim} embedding_name: "t" }} }} '
        'features { raw_feature { feature_name: "dur" expression: "user:dur" } } } }\n'
    )
    text += (
        'model_config { feature_groups { group_name: "deep" feature_names: "age" group_type: DEEP } '
        'feature_groups { group_name: "seq" feature_names: "seq__node" feature_names: "node" '
        'feature_names: "seq__dur" group_type: SEQUENCE } '
        "num_class: 1 losses { binary_cross_entropy {} } "
        f"tdm {{ multiwindow_din {{ {' '.join(f'windows_len: {each}' for each in windows)} "
        f"{_mlp('attn_mlp', hidden)} }} {_mlp('final', final)} }} }}"
    )
    lengths = [draw.randint(0, 9) for _ in range(draw.randint(1, 4))]
    inputs = {
        "age.values": torch.randn(len(lengths), deep),
        "node.values": torch.randint(rows, (len(lengths),)),
        "node.lengths": torch.ones(len(lengths), dtype=torch.long),
        "seq__node.values": torch.randint(rows, (sum(lengths),)),
        "seq__node.lengths": torch.tensor(lengths),
        "seq__dur.values": torch.randn(sum(lengths), 1),
        "seq__dur.lengths": torch.tensor(lengths, dtype=torch.int32),
    }
    tower = served(text, TowerName.MODEL, draw)
    with torch.no_grad():  # drawn as the other buffers, but these are settings
        tower.module.get_buffer("multiwindow_din.windows_len").copy_(torch.tensor(windows))
    state = _state(tower)
    table = state["embedding_group.seq_emb_impls.__BASE__.ec_dict." + f"{dim}.embeddings.t.weight"]
    query = table[inputs["node.values"].numpy()]
    events = np.hstack(
        [table[inputs["seq__node.values"].numpy()], inputs["seq__dur.values"].double().numpy()]
    )
    x = []
    for row, end in enumerate(np.cumsum(lengths)):
        mine = events[end - lengths[row] : end]
        padded = np.concatenate([query[row], np.zeros(of_history - of_query)])
        means = []
        for start, width in zip(np.cumsum([0, *windows[:-1]]), windows, strict=True):
            inside = mine[start : start + width]
            scores = [_score(event, padded, state, len(hidden)) for event in inside]
            total = sum((s * e for s, e in zip(scores, inside, strict=True)), np.zeros(of_history))
            means.append(total / max(1, len(inside)))
        x.append(np.concatenate([*means, padded, inputs["age.values"][row].double().numpy()]))
    expected = _linear(_dense(np.array(x), state, "deep_mlp", len(final)), state, "output_mlp")[:, 0]
    np.testing.assert_allclose(_run(tower, inputs)["logits"], expected, rtol=1e-4, atol=1e-4)

    embedding = served(text, TowerName.EMBEDDING, draw)
    of_items = {name: inputs[name] for name in ("node.values", "node.lengths")}
    rows_of_table = next(iter(embedding.module.state_dict().values()))
    assert torch.equal(_run(embedding, of_items)["item_emb"], rows_of_table[inputs["node.values"]])


def _score(event: Array, query: Array, state: dict[str, Array], layers: int) -> float:
    beside = np.concatenate([event, event * query, query])
    score = _linear(_dense(beside, state, "multiwindow_din.mlp", layers), state, "multiwindow_din.linear")[0]
    return float(score if score > 0 else state["multiwindow_din.active.weight"][0] * score)


def test_a_sampler_of_negatives_gives_the_items_of_dssm_v2_tables_of_their_own() -> None:
    text = (FIXTURES / "dssm_v2" / "pipeline.config").read_text()
    sampler = (
        'negative_sampler { input_path: "i" num_sample: 8 attr_fields: "item_id" attr_fields: "item_vec" '
        'attr_fields: "item_author" attr_fields: "item_tags" attr_fields: "item_ctr" '
        'attr_fields: "item_price" item_id_field: "item_id" }\n  fg_mode: FG_NONE'
    )
    config = parse_pipeline_config(text.replace("fg_mode: FG_NONE", sampler, 1))
    names = {name for name in build_model(config).state_dict() if ".sh_emb." in name}
    bags = "embedding_group.emb_impls.{}.ebc.embedding_bags.sh_emb.weight"
    assert names == {bags.format("__BASE__"), bags.format("__NEG__")}
    [item] = tower_configs(config, (TowerName.ITEM,))
    tower = build_tower(item, plan_dims(item.pipeline.features, max_batch_size=8))
    tables = [name for name in tower.module.state_dict() if name.startswith("embedding_group.")]
    assert tables
    assert all("__NEG__" in name for name in tables)


@pytest.mark.parametrize("name", [TowerName.USER, TowerName.ITEM])
def test_variational_dropout_of_dssm_v2_lies_below_the_tower(name: TowerName) -> None:
    text = (FIXTURES / "dssm_v2" / "pipeline.config").read_text()
    text = text.replace("  dssm_v2 {", "  variational_dropout {}\n  dssm_v2 {", 1)
    [config] = tower_configs(parse_pipeline_config(text), (name,))
    state = build_tower(config, plan_dims(config.pipeline.features, max_batch_size=8)).module.state_dict()
    group = f"{name}_tower.group_variational_dropouts.{name}"
    assert {key for key in state if "variational" in key} == {
        f"{group}.feature_p",
        f"{group}.feature_dim_repeat",
    }
    assert state[f"{group}.feature_p"].shape == (6,)


def test_tdm_has_no_variational_dropout_whatever_the_config_says() -> None:
    text = (FIXTURES / "tdm" / "pipeline.config").read_text()
    text = re.sub(r"\n  tdm \{", "\n  variational_dropout {}\n  tdm {", text, count=1)
    state = build_model(parse_pipeline_config(text)).state_dict()
    assert not [name for name in state if "variational" in name]
