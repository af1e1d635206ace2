"""A small world of users and items with known tastes, its rows, and models trained on them in seconds.

U users, I items, D width of a taste. A day's rows are drawn anew; the tastes stay the same.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from safetensors.torch import save_file
from torch import Tensor

from exporter.checkpoint.keymap import PREFIX
from exporter.config.parse import parse_pipeline_config
from exporter.models.registry import build_model

USERS, ITEMS, GROUPS = 600, 400, 20
_TASTE = 3  # width
_STEPS, _BATCH, _RATE = 600, 2048, 0.01
_DAILY_STEPS, _DAILY_RATE = 25, 0.002  # of training that goes on from yesterday's weights

_FEATURE = """feature_configs {{
  id_feature {{ feature_name: "{name}" expression: "{side}:{name}" embedding_dim: 16 num_buckets: {rows} }}
}}
"""
_PRICE = """feature_configs {
  raw_feature { feature_name: "price" expression: "item:price" }
}
"""
_FEATURES = (
    _FEATURE.format(name="user_id", side="user", rows=USERS)
    + _FEATURE.format(name="user_group", side="user", rows=GROUPS)
    + _FEATURE.format(name="item_id", side="item", rows=ITEMS)
    + _FEATURE.format(name="item_group", side="item", rows=GROUPS)
    + _PRICE
)
_HEAD = """train_input_path: "train.parquet"
eval_input_path: ""
model_dir: "."
data_config { batch_size: 256 dataset_type: ParquetDataset fg_mode: FG_NONE label_fields: "click" }
"""
_RANKER = """model_config {
  feature_groups { group_name: "deep" feature_names: "user_id" feature_names: "user_group"
    feature_names: "item_id" feature_names: "item_group" feature_names: "price" group_type: DEEP }
  losses { binary_cross_entropy {} }
  metrics { auc {} }
  metrics { grouped_auc { grouping_key: "user_id" } }
  metrics { normalized_entropy {} }
  multi_tower {
    towers { input: "deep" mlp { hidden_units: %(hidden)d hidden_units: 32 } }
    final { hidden_units: 16 }
  }
}
"""
_RETRIEVER = """model_config {
  feature_groups { group_name: "user" feature_names: "user_id" feature_names: "user_group"
    group_type: DEEP }
  feature_groups { group_name: "item" feature_names: "item_id" feature_names: "item_group"
    group_type: DEEP }
  losses { softmax_cross_entropy {} }
  dssm {
    user_tower { input: "user" mlp { hidden_units: 32 hidden_units: 32 } }
    item_tower { input: "item" mlp { hidden_units: 32 hidden_units: 32 } }
    output_dim: 16
    similarity: COSINE
    temperature: 0.05
  }
}
"""

RETRIEVER = _HEAD + _FEATURES.replace(_PRICE, "") + _RETRIEVER
State = dict[str, Tensor]


def ranker(*, hidden: int = 64) -> str:
    """Return the config of the ranking model; its first layer has `hidden` units."""
    return _HEAD + _FEATURES + _RANKER % {"hidden": hidden}


@dataclass(frozen=True, kw_only=True)
class World:
    """Tastes of all users (U, D) and items (I, D), and what else decides over a click."""

    users: NDArray[np.float64]
    tastes: NDArray[np.float64]
    bias: NDArray[np.float64]
    price: NDArray[np.float64]
    popularity: NDArray[np.float64]

    @classmethod
    def make(cls, seed: int = 1) -> "World":
        random = np.random.default_rng(seed)
        users, items = random.normal(size=(USERS, _TASTE)), random.normal(size=(ITEMS, _TASTE))
        popularity = 1.0 / np.arange(1, ITEMS + 1) ** 0.7
        return cls(
            users=users,
            tastes=items,
            bias=random.normal(size=ITEMS) * 0.7,
            price=random.lognormal(size=ITEMS),
            popularity=random.permutation(popularity / popularity.sum()),
        )

    def impressions(self, rows: int, *, seed: int) -> dict[str, NDArray[np.generic]]:
        """Return rows of shown items with clicks."""
        random = np.random.default_rng(seed)
        user, item = random.integers(USERS, size=rows), random.choice(ITEMS, size=rows, p=self.popularity)
        logit = (self.users[user] * self.tastes[item]).sum(axis=1) * 0.8 + self.bias[item] - 1.0
        click = random.random(rows) < 1 / (1 + np.exp(-logit))
        return self._columns(user, item) | {"click": click.astype(np.int64)}

    def choices(self, rows: int, *, seed: int) -> dict[str, NDArray[np.generic]]:
        """Return rows of users with the item that each chose among all."""
        random = np.random.default_rng(seed)
        user = random.integers(USERS, size=rows)
        score = self.users[user] @ self.tastes.T * 1.5 + random.gumbel(size=(rows, ITEMS))
        return self._columns(user, score.argmax(axis=1)) | {"click": np.ones(rows, dtype=np.int64)}

    def items(self) -> dict[str, NDArray[np.generic]]:
        """Return one row per item."""
        item = np.arange(ITEMS)
        return {name: self._columns(item, item)[name] for name in ("item_id", "item_group", "price")}

    def _columns(self, user: NDArray[np.int64], item: NDArray[np.int64]) -> dict[str, NDArray[np.generic]]:
        return {
            "user_id": user.astype(np.int64),
            "user_group": (user % GROUPS).astype(np.int64),
            "item_id": item.astype(np.int64),
            "item_group": (item % GROUPS).astype(np.int64),
            "price": self.price[item].astype(np.float32),
        }


def write_rows(columns: Mapping[str, NDArray[np.generic]], path: Path) -> str:
    """Write rows as parquet; return the file's URI."""
    pq.write_table(pa.table(dict(columns)), path, row_group_size=1 << 14)
    return str(path)


def train(
    config: str,
    columns: Mapping[str, NDArray[np.generic]],
    *,
    seed: int,
    steps: int | None = None,
    begin: State | None = None,
) -> State:
    """Return the weights after training on the rows: a click for ranking, the item among the batch's else."""
    torch.manual_seed(seed)
    model = build_model(parse_pipeline_config(config))
    if begin is not None:
        model.load_state_dict(begin)
    model.train()
    optimizer = torch.optim.Adam(model.parameters(), lr=_RATE if begin is None else _DAILY_RATE)
    random = np.random.default_rng(seed)
    size = len(columns["user_id"])
    for _ in range(steps or (_STEPS if begin is None else _DAILY_STEPS)):
        rows = random.integers(size, size=_BATCH if "multi_tower" in config else 512)
        outputs = model(_inputs(config, {name: values[rows] for name, values in columns.items()}))
        if "multi_tower" in config:
            loss = F.binary_cross_entropy_with_logits(
                outputs["logits"], torch.from_numpy(columns["click"][rows].astype(np.float32))
            )
        else:
            scores = outputs["user_tower_emb"] @ outputs["item_tower_emb"].T / 0.05
            loss = F.cross_entropy(scores, torch.arange(len(rows)))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return {name: value.detach().clone() for name, value in model.state_dict().items()}


def _inputs(config: str, columns: Mapping[str, NDArray[np.generic]]) -> dict[str, Tensor]:
    inputs: dict[str, Tensor] = {}
    for name, values in columns.items():
        if name == "click" or f'"{name}"' not in config:
            continue
        tensor = torch.from_numpy(np.ascontiguousarray(values))
        sparse = tensor.dtype == torch.int64
        inputs[f"{name}.values"] = tensor if sparse else tensor.reshape(-1, 1)
        inputs[f"{name}.lengths"] = torch.ones(len(tensor), dtype=torch.int64 if sparse else torch.int32)
    return inputs


def item_vectors(state: State) -> NDArray[np.float32]:
    """Return the vectors of all items by the eager item tower of the retrieval model."""
    model = build_model(parse_pipeline_config(RETRIEVER)).eval()
    model.load_state_dict(state)
    item = np.arange(ITEMS)
    columns = {"user_id": item, "user_group": item % GROUPS, "item_id": item, "item_group": item % GROUPS}
    with torch.no_grad():
        vectors: NDArray[np.float32] = model(_inputs(RETRIEVER, columns))["item_tower_emb"].numpy()
    return vectors


def write_checkpoint(state: State, path: Path) -> str:
    """Write weights as a checkpoint; return its path."""
    save_file({PREFIX + name: value.contiguous() for name, value in state.items()}, path)
    return str(path)
