"""Whole ranking models of random configs, read from text, against their formulas in numpy."""

from dataclasses import replace
from itertools import combinations
from typing import TypedDict

import numpy as np

from exporter.config.blocks.wukong import WukongLayerConfig
from tests.exporter.models.blocks.interactions.plain_wukong import apply_layer, draw_layer
from tests.exporter.models.random_configs import Draw, over_random_configs
from tests.exporter.models.rank.random_rankings import (
    Array,
    RandomModel,
    draw_features,
    draw_mlp,
    require_equal,
    some,
)


class Options(TypedDict):
    """Options of a model that every family has."""

    has_dropout: bool
    num_class: int


def draw_options(draw: Draw) -> Options:
    return {"has_dropout": draw.flag(), "num_class": draw.randint(1, 3)}


def draw_wide(draw: Draw, *, fm_width: int = 0) -> RandomModel:
    """Draw features and the groups `wide` and `deep`, and `fm` of features of one width if that is given."""
    features = draw_features(draw, width=fm_width)
    sparse = [feature for feature in features if feature.is_sparse]
    groups = {"wide": some(draw, sparse), "deep": some(draw, features)}
    if fm_width and draw.flag():
        groups["fm"] = some(draw, features)
    return RandomModel(features=features, groups=groups, wide_dim=draw.width(), **draw_options(draw))


@over_random_configs
def test_wide_and_deep(draw: Draw) -> None:
    model, deep, final = draw_wide(draw), draw_mlp(draw), draw_mlp(draw) if draw.flag() else None
    family = (
        f"{deep.text('deep')} {final.text('final') if final else ''} wide_embedding_dim: {model.wide_dim}"
    )
    actual = model.logits(draw, f"wide_and_deep {{ {family} }}")
    wide, hidden = model.group("wide").sum(1, keepdims=True), model.mlp(model.group("deep"), "deep_mlp", deep)
    if final:
        joined = np.concatenate([wide, hidden], axis=1)
        expected = model.linear(model.mlp(joined, "final_mlp", final), "output_mlp")
    else:
        expected = wide + model.linear(hidden, "output_mlp")
    require_equal(actual, expected)


@over_random_configs
def test_deepfm(draw: Draw) -> None:
    model = draw_wide(draw, fm_width=draw.width())
    deep, final = draw_mlp(draw), draw_mlp(draw) if draw.flag() else None
    family = (
        f"{deep.text('deep')} {final.text('final') if final else ''} wide_embedding_dim: {model.wide_dim}"
    )
    actual = model.logits(draw, f"deepfm {{ {family} }}")
    parts = model.parts("fm" if "fm" in model.groups else "deep")
    products = sum((one * other for one, other in combinations(parts, 2)), np.zeros_like(parts[0]))
    wide, hidden = model.group("wide").sum(1, keepdims=True), model.mlp(model.group("deep"), "deep_mlp", deep)
    if final:
        joined = np.concatenate([wide, products, hidden], axis=1)
        expected = model.linear(model.mlp(joined, "final_mlp", final), "output_mlp")
    else:
        expected = wide + products.sum(1, keepdims=True) + model.linear(hidden, "output_mlp")
    require_equal(actual, expected)


@over_random_configs
def test_xdeepfm(draw: Draw) -> None:
    model, deep, final, sizes = draw_wide(draw), draw_mlp(draw), draw_mlp(draw), draw.widths()
    layers = " ".join(f"cin_layer_size: {size}" for size in sizes)
    family = f"cin {{ {layers} }} {deep.text('deep')} {final.text('final')}"
    actual = model.logits(draw, f"xdeepfm {{ {family} wide_embedding_dim: {model.wide_dim} }}")
    before = features = np.stack(model.parts("wide"), axis=1)
    sums = []
    for number in range(len(sizes)):
        weight = model.weights[f"cin.cin_layers.{number}.weight"][:, :, 0]
        weight = weight.reshape(len(weight), before.shape[1], features.shape[1])
        made = np.einsum("khn,bhd,bnd->bkd", weight, before, features)
        before = made + model.weights[f"cin.cin_layers.{number}.bias"][:, None]
        sums.append(before.sum(2))
    joined = np.concatenate([*sums, model.mlp(model.group("deep"), "deep", deep)], axis=1)
    require_equal(actual, model.linear(model.mlp(joined, "final", final), "output_mlp"))


def draw_vectors(draw: Draw) -> tuple[RandomModel, str, list[str]]:
    """Draw a config with sparse and perhaps dense features: its model, sparse group, and other groups."""
    width = draw.width()
    features = draw_features(draw, width=width)
    others = [feature for feature in draw_features(draw) if not feature.is_sparse]
    others = [replace(feature, name=f"more_{feature.name}") for feature in others]
    groups = {"sparse": some(draw, features)}
    if others:
        groups["dense"] = some(draw, others)
    elif draw.flag():
        groups = {"alone": groups["sparse"]}
    model = RandomModel(features=features + others, groups=groups, **draw_options(draw))
    return model, next(iter(groups)), ["dense"] * bool(others)


@over_random_configs
def test_dlrm(draw: Draw) -> None:
    model, sparse, dense = draw_vectors(draw)
    width = model.groups[sparse][0].width
    mlp, final = draw_mlp(draw, last=width), draw_mlp(draw)
    appends = draw.flag() or len(model.groups[sparse]) == 1
    family = f"{mlp.text('dense_mlp') if dense else ''} {final.text('final')}"
    actual = model.logits(draw, f"dlrm {{ {family} arch_with_sparse: {str(appends).lower()} }}")
    vectors = model.parts(sparse)
    joined: list[Array] = []
    if dense:
        vectors.insert(0, model.mlp(model.group("dense"), "dense_mlp", mlp))
        joined.append(vectors[0])
    if appends:
        joined.append(model.group(sparse))
    pairs = [(one * other).sum(1, keepdims=True) for one, other in combinations(vectors, 2)]
    hidden = model.mlp(np.concatenate([*pairs, *joined], axis=1), "final_mlp", final)
    require_equal(actual, model.linear(hidden, "output_mlp"))


@over_random_configs
def test_wukong(draw: Draw) -> None:
    model, sparse, dense = draw_vectors(draw)
    mlp, final = draw_mlp(draw, last=model.groups[sparse][0].width), draw_mlp(draw)
    layers = [draw_layer(draw) for _ in range(draw.randint(0, 3))]
    family = f"{mlp.text('dense_mlp') if dense else ''} {' '.join(map(layer_text, layers))}"
    actual = model.logits(draw, f"wukong {{ {family} {final.text('final')} }}")
    vectors = model.parts(sparse)
    if dense:
        vectors.insert(0, model.mlp(model.group("dense"), "dense_mlp", mlp))
    x = np.stack(vectors, axis=1)
    for number, layer in enumerate(layers):
        x = apply_layer(x, model.weights, f"_wukong_layers.{number}.", layer)
    hidden = model.mlp(x.reshape(len(x), -1), "final_mlp", final)
    require_equal(actual, model.linear(hidden, "output_mlp"))


def layer_text(layer: WukongLayerConfig) -> str:
    units = " ".join(f"hidden_units: {width}" for width in layer.mlp.hidden_units)
    mlp = f"{units} bias: {str(layer.mlp.bias).lower()} use_ln: {str(layer.mlp.use_ln).lower()}"
    return (
        f"wukong_layers {{ lcb_feature_num: {layer.linear_vectors} fmb_feature_num: {layer.product_vectors} "
        f"compressed_feature_num: {layer.compressed} feature_num_mlp {{ {mlp} }} }}"
    )


@over_random_configs
def test_multi_tower(draw: Draw) -> None:
    features = draw_features(draw)
    groups = {f"group_{number}": some(draw, features) for number in range(draw.randint(1, 4))}
    model = RandomModel(features=features, groups=groups, **draw_options(draw))
    towers = {name: draw_mlp(draw) for name in draw.sample(list(groups), draw.randint(1, len(groups)))}
    final = draw_mlp(draw)
    family = " ".join(f'towers {{ input: "{name}" {mlp.text("mlp")} }}' for name, mlp in towers.items())
    actual = model.logits(draw, f"multi_tower {{ {family} {final.text('final')} }}")
    outputs = [model.mlp(model.group(name), f"towers.{name}", mlp) for name, mlp in towers.items()]
    hidden = model.mlp(np.concatenate(outputs, axis=1), "final_mlp", final)
    require_equal(actual, model.linear(hidden, "output_mlp"))
