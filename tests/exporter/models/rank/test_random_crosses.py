"""Whole models over one group, of random configs read from text, against their formulas in numpy."""

import numpy as np

from tests.exporter.models.random_configs import Draw, over_random_configs
from tests.exporter.models.rank.random_rankings import (
    Array,
    RandomModel,
    draw_features,
    draw_mlp,
    require_equal,
    some,
)


def draw_model(draw: Draw) -> RandomModel:
    features = draw_features(draw)
    return RandomModel(
        features=features,
        groups={"all": some(draw, features)},
        has_dropout=draw.flag(),
        num_class=draw.randint(1, 3),
    )


@over_random_configs
def test_dcn_v1_reads_cross_and_deep_side_by_side(draw: Draw) -> None:
    model, layers = draw_model(draw), draw.randint(0, 3)
    deep, final = draw_mlp(draw), draw_mlp(draw)
    text = f"dcn_v1 {{ cross {{ cross_num: {layers} }} {deep.text('deep')} {final.text('final')} }}"
    actual = model.logits(draw, text)
    x0 = x = model.group("all")
    for layer in range(layers):
        x = (x @ model.weights[f"cross.w.{layer}.weight"].T) * x0 + model.weights[f"cross.b.{layer}"] + x
    both = np.concatenate([x, model.mlp(x0, "deep", deep)], axis=1)
    require_equal(actual, model.mlp(both, "final_dnn", final) @ model.weights["output_linear.weight"].T)


@over_random_configs
def test_dcn_v2_crosses_the_backbone_and_reads_the_group_in_deep(draw: Draw) -> None:
    model, layers = draw_model(draw), draw.randint(0, 3)
    final = draw_mlp(draw)
    backbone = draw_mlp(draw) if draw.flag() else None
    deep = draw_mlp(draw) if draw.flag() else None
    optional = (backbone.text("backbone") if backbone else "") + (deep.text("deep") if deep else "")
    cross = f"cross {{ cross_num: {layers} low_rank: {draw.width(4)} }}"
    actual = model.logits(draw, f"dcn_v2 {{ {optional} {cross} {final.text('final')} }}")
    group = model.group("all")
    x0 = x = model.mlp(group, "backbone", backbone) if backbone else group
    for layer in range(layers):
        low = x @ model.weights[f"cross.u_kernels.{layer}.weight"].T
        x = x0 * model.linear(low, f"cross.v_kernels.{layer}") + x
    both = np.concatenate([x, model.mlp(group, "deep", deep)], axis=1) if deep else x
    require_equal(actual, model.mlp(both, "final", final) @ model.weights["output_mlp.weight"].T)


@over_random_configs
def test_mask_net_ends_in_its_top_mlp(draw: Draw) -> None:
    model, blocks, parallel = draw_model(draw), draw.randint(1, 3), draw.flag()
    top, hidden = draw_mlp(draw), draw.width()
    middle = "reduction_ratio: 1.5" if draw.flag() else f"reduction_ratio: 0 aggregation_dim: {draw.width()}"
    actual = model.logits(
        draw,
        f"mask_net {{ mask_net_module {{ n_mask_blocks: {blocks} use_parallel: {str(parallel).lower()} "
        f"mask_block {{ hidden_dim: {hidden} {middle} }} {top.text('top_mlp')} }} }}",
    )
    group = model.group("all")
    read = _norm(model, group, "mask_net_layer.ln_emb")
    outputs: list[Array] = []
    for number in range(blocks):
        block = f"mask_net_layer.mask_blocks.{number}"
        mask = np.maximum(model.linear(group, f"{block}.mask_generator.0"), 0)
        masked = (read if parallel or not outputs else outputs[-1]) * model.linear(
            mask, f"{block}.mask_generator.2"
        )
        normed = _norm(model, model.linear(masked, f"{block}.ffn.0"), f"{block}.ffn.1")
        outputs.append(np.maximum(normed, 0))
    last = np.concatenate(outputs, axis=1) if parallel else outputs[-1]
    hidden_top = model.mlp(last, "mask_net_layer.top_mlp", top)
    require_equal(actual, hidden_top @ model.weights["output_linear.weight"].T)


@over_random_configs
def test_rocket_launching_serves_the_light_net(draw: Draw) -> None:
    model = draw_model(draw)
    share = draw_mlp(draw) if draw.flag() else None
    light, booster = draw_mlp(draw), draw_mlp(draw)
    outputs = model.outputs(
        draw,
        f"rocket_launching {{ {share.text('share_mlp') if share else ''} "
        f"{light.text('light_mlp')} {booster.text('booster_mlp')} }}",
    )
    x = model.group("all")
    shared = model.mlp(x, "share_mlp", share) if share else x
    expected = model.linear(model.mlp(shared, "light_mlp", light), "light_linear")
    require_equal(outputs["logits_light"].reshape(-1, model.num_class), expected)


def _norm(model: RandomModel, x: Array, name: str) -> Array:
    normed = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5)
    scaled: Array = normed * model.weights[f"{name}.weight"] + model.weights[f"{name}.bias"]
    return scaled
