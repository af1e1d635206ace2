"""Sequence encoders over random configs equal plain formulas, computed row by row in numpy."""

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from exporter.config.blocks.mlp import MlpConfig
from exporter.config.blocks.sequence_encoders import (
    DinEncoderConfig,
    MultiWindowDinEncoderConfig,
    PoolingEncoderConfig,
    SelfAttentionEncoderConfig,
    SequenceEncoderConfig,
    SequencePooling,
    SimpleAttentionConfig,
    encoder_width,
)
from exporter.models.blocks.sequence_encoders import build_encoder
from tests.exporter.models.random_configs import Draw, over_random_configs

Array = NDArray[np.float64]
ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "nn.ReLU": lambda x: np.maximum(x, 0),
    "nn.Tanh": np.tanh,
    "nn.Sigmoid": lambda x: 1 / (1 + np.exp(-x)),
}


class _Weights:
    """A module's weights by name, and the layers made of them."""

    def __init__(self, module: nn.Module) -> None:
        self._weights = {name: value.double().numpy() for name, value in module.state_dict().items()}

    def __getitem__(self, name: str) -> Array:
        return np.asarray(self._weights[name])

    def linear(self, name: str, x: Array) -> Array:
        return np.asarray(x @ self[f"{name}.weight"].T + self[f"{name}.bias"])

    def mlp(self, config: MlpConfig, x: Array) -> Array:
        for layer in range(len(config.hidden_units)):
            x = ACTIVATIONS[config.activation](self.linear(f"mlp.mlp.{layer}.perceptron.0", x))
        return x


Formula = Callable[[_Weights, Array, Array], Array]


def _softmax(scores: Array) -> Array:
    powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return np.asarray(powers / powers.sum(axis=-1, keepdims=True))


def _mlp(draw: Draw) -> MlpConfig:
    return MlpConfig(hidden_units=draw.widths(), activation=draw.choice(list(ACTIVATIONS)))


def _compare(
    draw: Draw, config: SequenceEncoderConfig, query_width: int, width: int, formula: Formula
) -> None:
    """Encode rows of drawn lengths, also none, with as many places as the longest or more."""
    encoder = draw.weights(build_encoder(config, query_width=query_width, sequence_width=width))
    lengths = [draw.randint(0, 7) for _ in range(draw.randint(1, 5))]
    places = max(2, *lengths) + draw.randint(0, 2)
    query = torch.randn(len(lengths), query_width)
    rows = [torch.randn(length, width) for length in lengths]
    padded = torch.zeros(len(lengths), places, width)
    for row, values in enumerate(rows):
        padded[row, : len(values)] = values
    embedded = {"s.query": query, "s.sequence": padded, "s.sequence_length": torch.tensor(lengths)}
    with torch.no_grad():
        found = encoder(embedded)
    weights = _Weights(encoder)
    expected = np.stack(
        [
            formula(weights, one.double().numpy(), values.double().numpy())
            for one, values in zip(query, rows, strict=True)
        ]
    )
    assert found.shape == (len(lengths), encoder_width(config, query_width=query_width, sequence_width=width))
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-4, atol=1e-5)


def _limit(draw: Draw) -> int:
    return draw.choice([0, 0, 1, 2, 5, 9])


@over_random_configs
def test_din_weighs_by_an_mlp_of_element_and_query(draw: Draw) -> None:
    width = draw.width()
    config = DinEncoderConfig(group="s", attn_mlp=_mlp(draw), max_seq_length=_limit(draw))

    def encode(weights: _Weights, query: Array, rows: Array) -> Array:
        rows = rows[: config.max_seq_length or None]
        if not len(rows):
            return np.zeros(width)
        query = np.tile(np.pad(query, (0, width - len(query))), (len(rows), 1))
        beside = np.concatenate([query, rows, query - rows, query * rows], axis=1)
        scores = weights.linear("linear", weights.mlp(config.attn_mlp, beside))[:, 0]
        return np.asarray(_softmax(scores) @ rows)

    _compare(draw, config, draw.randint(1, width), width, encode)


@over_random_configs
def test_simple_attention_weighs_by_products_with_the_query(draw: Draw) -> None:
    width = draw.width()
    config = SimpleAttentionConfig(group="s", max_seq_length=_limit(draw))

    def encode(_weights: _Weights, query: Array, rows: Array) -> Array:
        rows = rows[: config.max_seq_length or None]
        return np.asarray(_softmax(rows @ query) @ rows) if len(rows) else np.zeros(width)

    _compare(draw, config, width, width, encode)


@over_random_configs
def test_pooling_sums_or_averages(draw: Draw) -> None:
    width = draw.width()
    pooling = draw.choice(list(SequencePooling))
    config = PoolingEncoderConfig(group="s", pooling=pooling, max_seq_length=_limit(draw))

    def encode(_weights: _Weights, _query: Array, rows: Array) -> Array:
        rows = rows[: config.max_seq_length or None]
        mean = rows.sum(axis=0) / max(1, len(rows))
        return np.asarray(mean if pooling is SequencePooling.MEAN else rows.sum(axis=0))

    _compare(draw, config, draw.width(), width, encode)


@over_random_configs
def test_windows_are_averaged_by_scores_without_softmax(draw: Draw) -> None:
    width = draw.width()
    config = MultiWindowDinEncoderConfig(group="s", attn_mlp=_mlp(draw), windows=draw.widths())

    def encode(weights: _Weights, query: Array, rows: Array) -> Array:
        query = np.pad(query, (0, width - len(query)))
        queries = np.tile(query, (len(rows), 1))
        beside = np.concatenate([rows, queries * rows, queries], axis=1)
        scores = weights.linear("linear", weights.mlp(config.attn_mlp, beside))
        scores = np.where(scores > 0, scores, weights["active.weight"] * scores)
        weighted, means, start = scores * rows, [], 0
        for window in config.windows:
            inside = weighted[start : start + window]
            means.append(inside.sum(axis=0) / max(1, len(inside)))
            start += window
        return np.concatenate([*means, query])

    _compare(draw, config, draw.randint(1, width), width, encode)


@over_random_configs
def test_self_attention_is_averaged_over_the_uncut_row(draw: Draw) -> None:
    heads, each = draw.randint(1, 4), draw.randint(1, 4)
    limit = _limit(draw)
    config = SelfAttentionEncoderConfig(group="s", width=heads * each, num_heads=heads, max_seq_length=limit)

    def encode(weights: _Weights, _query: Array, rows: Array) -> Array:
        whole, rows = max(1, len(rows)), rows[: limit or None]
        if not len(rows):
            return np.zeros(config.width)
        projected = []
        for part, name in enumerate(("_query", "_key", "_value")):
            span = slice(part * config.width, (part + 1) * config.width)
            weight, bias = weights["_multihead_attn.in_proj_weight"], weights["_multihead_attn.in_proj_bias"]
            projected.append(weights.linear(name, rows) @ weight[span].T + bias[span])
        outputs = []
        for head in range(heads):
            query, key, value = (x[:, head * each : (head + 1) * each] for x in projected)
            outputs.append(_softmax(query @ key.T / np.sqrt(each)) @ value)
        attended = weights.linear("_multihead_attn.out_proj", np.concatenate(outputs, axis=1))
        return np.asarray(attended.sum(axis=0) / whole)

    _compare(draw, config, draw.width(), draw.width(), encode)
