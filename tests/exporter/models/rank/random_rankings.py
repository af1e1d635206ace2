"""Random configs of ranking models, as text, and plain formulas of their parts in numpy.

B rows, D width. Formulas take a model's weights by their names in a checkpoint, without "model.".
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from exporter.config.parse import parse_pipeline_config
from exporter.config.schema import PipelineConfig
from exporter.models.registry import build_model
from tests.exporter.models.random_configs import Draw

Array = NDArray[np.float64]
_ACTIVATIONS: Mapping[str, Callable[[Array], Array]] = {
    "nn.ReLU": lambda x: np.maximum(x, 0),
    "nn.Tanh": np.tanh,
    "": lambda x: x,
}
_TABLES = "embedding_group.emb_impls.__BASE__.ebc.embedding_bags"
_ROWS = 11  # of every table
_HEAD = """train_input_path: "rows" eval_input_path: "rows" model_dir: "."
data_config { label_fields: "clk" fg_mode: FG_NONE }
"""


@dataclass(frozen=True, kw_only=True)
class RandomFeature:
    """A feature as a config writes it."""

    name: str
    width: int  # embedding_dim, or value_dim of plain numbers
    is_sparse: bool
    pooling: str = "sum"

    def text(self) -> str:
        named = f'feature_name: "{self.name}" expression: "user:{self.name}"'
        if not self.is_sparse:
            return f"feature_configs {{ raw_feature {{ {named} value_dim: {self.width} }} }}"
        table = f'num_buckets: {_ROWS} embedding_dim: {self.width} pooling: "{self.pooling}"'
        return f"feature_configs {{ id_feature {{ {named} {table} }} }}"


@dataclass(frozen=True, kw_only=True)
class RandomMlp:
    """An MLP as a config writes it."""

    hidden_units: tuple[int, ...]
    activation: str
    norm: str  # "use_bn", "use_ln" or none
    bias: bool

    def text(self, name: str) -> str:
        units = " ".join(f"hidden_units: {width}" for width in self.hidden_units)
        norm = f"{self.norm}: true" if self.norm else ""
        bias = str(self.bias).lower()
        return f'{name} {{ {units} activation: "{self.activation}" bias: {bias} {norm} }}'


@dataclass(kw_only=True)
class RandomModel:
    """Features and groups of a config, and the weights and inputs of the model that is built from it."""

    features: list[RandomFeature]
    groups: dict[str, list[RandomFeature]]
    wide_dim: int = 0  # of the groups named `wide`, which are of type WIDE
    has_dropout: bool = False
    num_class: int = 1
    weights: Mapping[str, Array] = field(default_factory=dict)
    inputs: Mapping[str, Tensor] = field(default_factory=dict)

    def pipeline(self, family: str) -> PipelineConfig:
        """Parse the config whose model is the text `family`."""
        features = "\n".join(feature.text() for feature in self.features)
        groups = "\n".join(
            f'feature_groups {{ group_name: "{name}" group_type: {"WIDE" if name == "wide" else "DEEP"} '
            + " ".join(f'feature_names: "{member.name}"' for member in members)
            + " }"
            for name, members in self.groups.items()
        )
        dropout = "variational_dropout {}" if self.has_dropout else ""
        loss = "binary_cross_entropy" if self.num_class == 1 else "softmax_cross_entropy"
        losses = f"num_class: {self.num_class} losses {{ {loss} {{}} }}"
        return parse_pipeline_config(
            f"{_HEAD}{features}\nmodel_config {{ {groups} {losses} {dropout} {family} }}"
        )

    def logits(self, draw: Draw, family: str) -> Array:
        """Build the model, draw its weights and inputs, keep both, and return its logits, (B, classes)."""
        return self.outputs(draw, family)["logits"].reshape(-1, self.num_class)

    def outputs(self, draw: Draw, family: str) -> dict[str, Array]:
        """Build the model, draw its weights and inputs, keep both, and return all its outputs."""
        module = draw.weights(build_model(self.pipeline(family)))
        self.weights = {name: weight.double().numpy() for name, weight in module.state_dict().items()}
        self.inputs = dict(_draw_inputs(draw, self.features))
        with torch.no_grad():
            return {name: output.double().numpy() for name, output in module(self.inputs).items()}

    def parts(self, group: str) -> list[Array]:
        """Return the vectors of the group's features, (B, D) each, scaled where the group has a dropout."""
        wide = group == "wide"
        parts = [self._embed(member, "_wide" if wide else "") for member in self.groups[group]]
        kept = self.weights.get(f"group_variational_dropouts.{group}.feature_p")
        assert (kept is not None) == (self.has_dropout and len(parts) > 1)
        if kept is None:
            return parts
        return [part / (1 + np.exp(kept[number])) for number, part in enumerate(parts)]

    def group(self, name: str) -> Array:
        return np.concatenate(self.parts(name), axis=1)

    def mlp(self, x: Array, name: str, config: RandomMlp) -> Array:
        """Apply the perceptrons of an MLP: linear, norm, activation."""
        for number in range(len(config.hidden_units)):
            layer = f"{name}.mlp.{number}.perceptron"
            x = x @ self.weights[f"{layer}.0.weight"].T + self.weights.get(f"{layer}.0.bias", 0)
            if config.norm:
                x = self._norm(x, f"{layer}.1", config.norm)
            x = _ACTIVATIONS[config.activation](x)
        return x

    def linear(self, x: Array, name: str) -> Array:
        y: Array = x @ self.weights[f"{name}.weight"].T + self.weights[f"{name}.bias"]
        return y

    def _norm(self, x: Array, name: str, kind: str) -> Array:
        if kind == "use_bn":
            mean, variance = self.weights[f"{name}.running_mean"], self.weights[f"{name}.running_var"]
        else:
            mean, variance = x.mean(-1, keepdims=True), x.var(-1, keepdims=True)
        normed: Array = (x - mean) / np.sqrt(variance + 1e-5)
        return normed * self.weights[f"{name}.weight"] + self.weights[f"{name}.bias"]

    def _embed(self, feature: RandomFeature, table_suffix: str) -> Array:
        values = self.inputs[f"{feature.name}.values"].numpy()
        if not feature.is_sparse:
            return values.astype(np.float64)
        table = self.weights[f"{_TABLES}.{feature.name}_emb{table_suffix}.weight"]
        rows, start = [], 0
        for length in self.inputs[f"{feature.name}.lengths"].tolist():
            total = table[values[start : start + length]].sum(0)
            rows.append(total / max(length, 1) if feature.pooling == "mean" else total)
            start += length
        return np.stack(rows)


def draw_features(draw: Draw, *, width: int = 0) -> list[RandomFeature]:
    """Draw features with tables and some of plain numbers; all are `width` wide if that is given."""
    sparse = [
        RandomFeature(
            name=f"id_{number}",
            width=width or draw.width(),
            is_sparse=True,
            pooling=draw.choice(("sum", "mean")),
        )
        for number in range(draw.randint(1, 4))
    ]
    dense = [
        RandomFeature(name=f"raw_{number}", width=width or draw.width(4), is_sparse=False)
        for number in range(draw.randint(0, 3))
    ]
    return sparse + dense


def some(draw: Draw, features: Sequence[RandomFeature]) -> list[RandomFeature]:
    """Draw some of the features, at least one, in any order."""
    return draw.sample(features, draw.randint(1, len(features)))


def draw_mlp(draw: Draw, *, last: int = 0) -> RandomMlp:
    """Draw an MLP, whose last layer has the width `last` if that is given."""
    units = draw.widths()
    return RandomMlp(
        hidden_units=(*units, last) if last else units,
        activation=draw.choice(tuple(_ACTIVATIONS)),
        norm=draw.choice(("", "use_bn", "use_ln")),
        bias=draw.flag(),
    )


def require_equal(actual: Array, expected: Array) -> None:
    """Require equal numbers, to what float32 can be expected to hold of sums of this scale."""
    assert expected.shape == actual.shape
    scale = max(1.0, float(np.abs(expected).max()))
    np.testing.assert_allclose(actual, expected, rtol=0, atol=1e-4 * scale)


def _draw_inputs(draw: Draw, features: Sequence[RandomFeature]) -> list[tuple[str, Tensor]]:
    rows = draw.width(4)
    tensors: list[tuple[str, Tensor]] = []
    for feature in features:
        if feature.is_sparse:
            lengths = torch.randint(0, 4, (rows,))
            tensors.append((f"{feature.name}.lengths", lengths))
            tensors.append((f"{feature.name}.values", torch.randint(0, _ROWS, (int(lengths.sum()),))))
        else:
            tensors.append((f"{feature.name}.values", torch.randn(rows, feature.width)))
    return tensors
