"""Dense embeddings against the formulas, written out with numpy."""

from dataclasses import replace

import numpy as np
import torch

from exporter.config.blocks.dense_embedding import AutoDisConfig, LinearEmbeddingConfig
from exporter.config.schema import Feature, FeatureGroup, FeatureKind, GroupKind, TableConfig
from exporter.models.blocks.dense_embedding import build_dense_embedding
from exporter.models.embedding.embedding_group import EmbeddingGroup
from tests.exporter.models.random_configs import Draw, over_random_configs
from tests.exporter.models.recorded import pipeline_of


@over_random_configs
def test_autodis_mixes_its_meta_embeddings(draw: Draw) -> None:
    config = AutoDisConfig(
        dim=draw.width(), channels=draw.width(), temperature=draw.uniform(0.05, 3), keep_prob=draw.random()
    )
    module = build_dense_embedding(config)
    module.add("other")
    module.add("x")
    draw.weights(module)
    x = torch.randn(draw.width(), 1) * 3
    weights = {name: value.detach().double().numpy() for name, value in module.state_dict().items()}
    expected = np.zeros((len(x), config.dim))
    for row, value in enumerate(x[:, 0].tolist()):
        hidden = value * weights["proj_w_x.weight"]
        hidden = np.where(hidden > 0, hidden, 0.01 * hidden)
        scores = [
            sum(weights["proj_m_x.weight"][i, j] * hidden[j] for j in range(config.channels))
            + config.keep_prob * hidden[i]
            for i in range(config.channels)
        ]
        shares = np.exp((np.array(scores) - max(scores)) / config.temperature)
        for channel, share in enumerate(shares / shares.sum()):
            expected[row] += share * weights["meta_emb_x.weight"][channel]
    np.testing.assert_allclose(module.embed("x", x).detach().numpy(), expected, atol=2e-4)


@over_random_configs
def test_the_linear_embedding_is_a_product(draw: Draw) -> None:
    config = LinearEmbeddingConfig(dim=draw.width(), value_dim=draw.width(5))
    module = build_dense_embedding(config)
    module.add("x")
    draw.weights(module)
    [(name, weight)] = module.state_dict().items()
    assert name == "proj_w_x.weight"
    assert weight.shape == ((config.dim,) if config.value_dim == 1 else (config.value_dim, config.dim))
    x = torch.randn(draw.width(), config.value_dim)
    matrix = weight.numpy().reshape(config.value_dim, config.dim)
    expected = np.stack([sum(row[v] * matrix[v] for v in range(config.value_dim)) for row in x.numpy()])
    np.testing.assert_allclose(module.embed("x", x).detach().numpy(), expected, atol=1e-5)


def test_features_whose_names_have_dots_have_weights_of_their_own() -> None:
    module = build_dense_embedding(LinearEmbeddingConfig(dim=3, value_dim=1))
    for feature in ("a.b", "a", "a.c"):
        module.add(feature)
    assert set(module.state_dict()) == {"proj_w_a.weight", "proj_w_a.b.weight", "proj_w_a.c.weight"}
    one = torch.ones(1, 1)
    assert len({tuple(module.embed(name, one)[0].tolist()) for name in ("a.b", "a", "a.c")}) == 3


def test_keys_are_those_of_the_checkpoint() -> None:
    autodis = AutoDisConfig(dim=8, channels=4, temperature=0.2, keep_prob=0.7)
    assert autodis.key("x") == "autodis#8#4#0_700000#0_200000"
    assert LinearEmbeddingConfig(dim=6, value_dim=1).key("x") == "mlp#6"
    assert LinearEmbeddingConfig(dim=6, value_dim=4).key("x") == f"mlp#6#vdim#4#feature_name#{' ' * 12}x"


def test_embedded_numbers_stay_in_their_places_and_groups_share_weights() -> None:
    plain = Feature(name="plain", bare_name="plain", kind=FeatureKind.RAW)
    income = replace(plain, name="income", dense_embedding=LinearEmbeddingConfig(dim=3, value_dim=1))
    vector = replace(
        plain, name="vector", value_dim=2, dense_embedding=LinearEmbeddingConfig(dim=5, value_dim=2)
    )
    color = replace(plain, name="color", table=TableConfig(name="color_emb", rows=4, dim=2))
    features = (plain, income, vector, color)
    groups = (
        FeatureGroup(name="a", kind=GroupKind.DEEP, features=("vector", "plain", "income", "color")),
        FeatureGroup(name="b", kind=GroupKind.DEEP, features=("income",)),
        FeatureGroup(name="c", kind=GroupKind.DEEP, features=("plain",)),
    )
    module = EmbeddingGroup(replace(pipeline_of("dbmtl"), features=features, groups=groups))
    inputs = {
        "plain.values": torch.tensor([[1.0], [2.0]]),
        "income.values": torch.tensor([[3.0], [-4.0]]),
        "vector.values": torch.tensor([[1.0, -1.0], [0.5, 2.0]]),
        "color.values": torch.tensor([1, 3]),
        "color.lengths": torch.tensor([1, 1]),
    }
    assert module.look_up(inputs)["a"].shape == (2, 2 + 1 + 1 + 2)
    groups_BD = module(inputs)
    weights = dict(module.named_parameters())
    by_name = {name.rpartition("dense_embs.")[2]: weight for name, weight in weights.items()}
    embedded = inputs["income.values"] * by_name["mlp#3.proj_w_income.weight"]
    vectors = (
        inputs["vector.values"] @ by_name[f"mlp#5#vdim#2#feature_name#{' ' * 12}vector.proj_w_vector.weight"]
    )
    colors = weights["emb_impls.__BASE__.ebc.embedding_bags.color_emb.weight"][[1, 3]]
    expected = torch.cat([vectors, inputs["plain.values"], embedded, colors], dim=1)
    torch.testing.assert_close(groups_BD["a"], expected)
    torch.testing.assert_close(groups_BD["b"], embedded)
    assert torch.equal(groups_BD["c"], inputs["plain.values"])
    assert len(weights) == 3
