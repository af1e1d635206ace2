"""Models of semantic ids over random settings, and checkpoints whose codebooks are not fitted."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from exporter.checkpoint.errors import CodebooksNotFitted
from exporter.config.parse import parse_pipeline_config
from exporter.dims.plan import plan_dims
from exporter.dtypes import TableDtype
from exporter.lowering.lower_tower import lower_tower
from exporter.models.registry import build_model, build_tower
from exporter.options.tables import Tables
from exporter.spec import TowerName
from exporter.towers.tower import Tower
from exporter.towers.view import tower_configs
from exporter.verify.numerics import compare
from tests.exporter.models.random_configs import Draw, over_random_configs
from tests.exporter.models.recorded import FIXTURES, load_recorded_weights, recorded_tower, untrained

_FEATURES = (
    'feature_configs {{ raw_feature {{ feature_name: "x" expression: "item:x" value_dim: {} }} }}\n'
    'model_config {{ feature_groups {{ group_name: "g" feature_names: "x" group_type: DEEP }} {} }}'
)


def served(text: str, draw: Draw) -> Tower:
    [config] = tower_configs(parse_pipeline_config(text), (TowerName.MODEL,))
    tower = build_tower(config, plan_dims(config.pipeline.features, max_batch_size=64))
    draw.weights(tower.module)
    return tower


@over_random_configs
def test_ids_are_the_nearest_rows_of_what_is_left_of_an_encoded_vector(draw: Draw) -> None:
    width, embed, books = draw.randint(2, 9), draw.randint(2, 6), draw.widths()
    hidden = draw.choice([(), draw.widths(2)])
    has_encoder = draw.flag()
    codebooks = " ".join(f"codebook: {rows}" for rows in books)
    if has_encoder:
        hidden_dims = " ".join(f"hidden_dims: {each}" for each in hidden)
        model = f"sid_rqvae {{ embed_dim: {embed} {hidden_dims} {codebooks} }}"
    else:
        model = f"sid_rqkmeans {{ {codebooks} }}"
    tower = served(_FEATURES.format(width, model), draw)
    x = torch.randn(draw.randint(1, 30), width)
    with torch.no_grad():
        actual = tower.module({"x.values": x})["codes"]
    state = {name: weight.double().numpy() for name, weight in tower.module.state_dict().items()}
    left = x.double().numpy()
    for layer in range(len(hidden) or 1) if has_encoder else ():
        name = f"_encoder.0.mlp.{layer}.perceptron.0"
        left = np.maximum(left @ state[f"{name}.weight"].T + state[f"{name}.bias"], 0)
    if has_encoder:
        left = left @ state["_encoder.1.weight"].T + state["_encoder.1.bias"]
    for place in range(len(books)):
        name = "embedding.weight" if has_encoder else "centroids"
        rows = state[f"_quantizer.layers.{place}.{name}"]
        distances = ((left[:, None] - rows) ** 2).sum(axis=2)
        chosen = distances[np.arange(len(left)), actual[:, place].numpy()]
        # A row of an encoded vector is rounded to fp32: a tie may be decided either way.
        np.testing.assert_allclose(chosen, distances.min(axis=1), rtol=1e-5, atol=1e-5)
        left = left - rows[actual[:, place].numpy()]


def test_ids_by_quantised_tables_are_judged_by_the_error_of_the_tables() -> None:
    text = (
        'feature_configs { id_feature { feature_name: "x" expression: "item:x" num_buckets: 900 '
        "embedding_dim: 8 value_dim: 1 } }\n"
        'model_config { feature_groups { group_name: "g" feature_names: "x" group_type: DEEP } '
        "sid_rqvae { embed_dim: 4 codebook: 40 codebook: 30 "
        "candidate_output_config { enabled: true topk: 3 } } }"
    )
    torch.manual_seed(0)
    tower = served(text, Draw(0))
    options = replace(tower.config.options, tables=Tables(dtype=TableDtype.INT8))
    lowered = lower_tower(replace(tower, config=replace(tower.config, options=options)), torch.device("cpu"))
    reference = lowered.fp32
    assert reference is not None
    inputs = {"x.values": torch.arange(900), "x.lengths": torch.ones(900, dtype=torch.long)}
    with torch.no_grad():
        actual = lowered.tower.module(inputs)
    expected = reference(inputs)
    settled = reference.settle_ties(inputs, expected, actual)
    assert not torch.equal(actual["codes"], expected["codes"])
    assert compare(settled, actual).within(reference.tolerance)
    assert compare(settled, {**actual, "codes": (actual["codes"] + 1) % 30}).problem


def test_every_weight_of_the_checkpoint_is_known_the_losses_among_them() -> None:
    for family in ("sid_rqvae", "sid_rqkmeans"):
        text = (FIXTURES / family / "pipeline.config").read_text()
        names = set(build_model(parse_pipeline_config(text)).state_dict())
        assert set(recorded_tower(family, "model").module.state_dict()) <= names
        assert ("_loss_modules.contrastive_loss.logit_scale_cl" in names) == (family == "sid_rqvae")


def test_codebooks_that_were_never_fitted_are_refused_by_name() -> None:
    tower = recorded_tower("sid_rqkmeans", "model")
    fitted = untrained(tower.config)
    load_recorded_weights(fitted.module, "sid_rqkmeans")
    fitted.served.check_weights()
    fitted.module.get_buffer("_quantizer.layers.1._is_initialized").fill_(value=False)
    with pytest.raises(CodebooksNotFitted, match=r"1 codebooks are not fitted: _quantizer\.layers\.1\._is"):
        fitted.served.check_weights()


def test_codebooks_of_zeros_are_refused_though_they_are_marked_as_fitted() -> None:
    tower = untrained(recorded_tower("sid_rqkmeans", "model").config)
    load_recorded_weights(tower.module, "sid_rqkmeans")
    tower.module.get_buffer("_quantizer.layers.0.centroids").zero_()
    with pytest.raises(CodebooksNotFitted, match="layers.0"):
        tower.served.check_weights()
