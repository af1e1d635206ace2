"""The models whose exports are lied about: small, with one of each thing that a compiler can get wrong."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn import functional

from exporter.families.family import (
    DimDeclaration,
    Family,
    InputDeclaration,
    TensorDeclaration,
    TowerDeclaration,
    TowerName,
)
from tests.exporter.models.recorded import FIXTURES, rows_of

_TABLE_ROWS = 60
_WIDTH = 8
_ROWS = 48
_LONGEST = 7  # events of a history in the rows
_HIGHEST = 12  # events of a history that are declared


class Ranker(nn.Module):
    """A ranking model: the sum of a weighted history, a table of users, two numbers; two scores and a choice.

    `price` and `age` are of one shape and dtype, and so are `score` and `value`.
    """

    def __init__(self) -> None:
        super().__init__()
        self.items = nn.Embedding(_TABLE_ROWS, _WIDTH)
        self.users = nn.Embedding(_TABLE_ROWS, _WIDTH)
        self.linear = nn.Linear(2 * _WIDTH + 2, _WIDTH)
        self.norm = nn.LayerNorm(_WIDTH)
        self.attention = nn.Linear(_WIDTH, 4)
        self.score = nn.Linear(4, 1)
        self.value = nn.Linear(4, 1)

    def lookup(self, inputs: dict[str, Tensor]) -> dict[str, Tensor]:
        passed = {name: inputs[name] for name in ("age", "counts", "price", "weights")}
        return {"events": self.items(inputs["ids"]), "user_row": self.users(inputs["user"]), **passed}

    def compute(self, embedded: dict[str, Tensor]) -> dict[str, Tensor]:
        counts_B, events_NE = embedded["counts"], embedded["events"] * embedded["weights"]
        torch._assert_async(counts_B.sum() == events_NE.shape[0], "counts do not add up")
        rows_N = torch.repeat_interleave(counts_B, output_size=events_NE.shape[0])
        history_BE = events_NE.new_zeros(counts_B.shape[0], _WIDTH).index_add(0, rows_N, events_NE)
        joined_BF = torch.cat(
            [history_BE, embedded["user_row"], embedded["price"], embedded["age"] * 0.5], dim=1
        )
        hidden_BE = functional.gelu(self.norm(self.linear(joined_BF)))
        logits_BK = self.attention(hidden_BE)
        mixed_BK = torch.softmax(logits_BK * 20 + 90, dim=1) * torch.tanh(logits_BK)  # exp(90) is infinite
        return {
            "best": logits_BK.argmax(dim=1),
            "score": torch.sigmoid(self.score(mixed_BK)).squeeze(1),
            "value": self.value(mixed_BK).squeeze(1) + 1,
        }

    def forward(self, inputs: dict[str, Tensor]) -> dict[str, Tensor]:
        return self.compute(self.lookup(inputs))


class RankerFamily(Family):
    """Offers `Ranker`, in both modes."""

    def towers(self, config: str) -> list[TowerDeclaration]:
        events = TensorDeclaration(name="events", dtype="float32", shape=("n", _WIDTH))
        row = TensorDeclaration(name="user_row", dtype="float32", shape=("batch", _WIDTH))
        weights = InputDeclaration(name="weights", dtype="float32", shape=("n", 1), lengths="counts")
        counts = InputDeclaration(name="counts", dtype="int64", shape=("batch",))
        numbers = [
            InputDeclaration(name=name, dtype="float32", shape=("batch", 1)) for name in ("price", "age")
        ]
        passed = [
            TensorDeclaration(name=i.name, dtype=i.dtype, shape=i.shape) for i in (weights, counts, *numbers)
        ]
        ids, users = (
            InputDeclaration(
                name="ids", dtype="int64", shape=("n",), table_rows=_TABLE_ROWS, lengths="counts"
            ),
            InputDeclaration(name="user", dtype="int64", shape=("batch",), table_rows=_TABLE_ROWS),
        )
        return [
            TowerDeclaration(
                dims=(DimDeclaration(name="n", high_per_row=_HIGHEST),),
                inputs=(ids, weights, counts, users, *numbers),
                embedded=(events, row, *passed),
            )
        ]

    def build(self, config: str, tower: TowerName) -> nn.Module:
        return Ranker()


class Scorer(nn.Module):
    """Two numbers of a row through a few operators: a graph that is small enough to search."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(2, _WIDTH)
        self.norm = nn.LayerNorm(_WIDTH)
        self.attention = nn.Linear(_WIDTH, 4)
        self.score = nn.Linear(4, 1)

    def forward(self, inputs: dict[str, Tensor]) -> dict[str, Tensor]:
        joined_B2 = torch.cat([inputs["price"], inputs["age"] * 0.5], dim=1)
        hidden_BE = functional.gelu(self.norm(self.linear(joined_B2)))
        logits_BK = self.attention(hidden_BE)
        mixed_BK = torch.softmax(logits_BK * 20 + 90, dim=1) * torch.tanh(logits_BK)  # exp(90) is infinite
        return {"score": self.score(mixed_BK).squeeze(1)}


class ScorerFamily(Family):
    """Offers `Scorer`."""

    def towers(self, config: str) -> list[TowerDeclaration]:
        numbers = [
            InputDeclaration(name=name, dtype="float32", shape=("batch", 1)) for name in ("price", "age")
        ]
        return [TowerDeclaration(inputs=numbers)]

    def build(self, config: str, tower: TowerName) -> nn.Module:
        return Scorer()


class Item(nn.Module):
    """One vector of an item's two numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(2, _WIDTH)

    def forward(self, inputs: dict[str, Tensor]) -> dict[str, Tensor]:
        joined_B2 = torch.cat([inputs["price"], inputs["age"]], dim=1)
        return {"vector": torch.tanh(self.linear(joined_B2))}


class ItemFamily(Family):
    """Offers `Item`, whose vectors can be materialised."""

    def towers(self, config: str) -> list[TowerDeclaration]:
        numbers = [
            InputDeclaration(name=name, dtype="float32", shape=("batch", 1)) for name in ("price", "age")
        ]
        return [TowerDeclaration(name=TowerName.ITEM, inputs=numbers)]

    def build(self, config: str, tower: TowerName) -> nn.Module:
        return Item()


MODULES: dict[str, type[nn.Module]] = {"RankerFamily": Ranker, "ScorerFamily": Scorer, "ItemFamily": Item}


def source_of(family: str) -> str:
    """Return the text of a module that offers the family of this class."""
    return f"from {__name__} import {family}\n"


def write_sources(family: str, folder: Path, *, seed: int = 3) -> dict[str, str]:
    """Write a checkpoint and rows for a family's model; return the fields of a request that name them."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        weights = {name: value.detach().clone() for name, value in MODULES[family]().state_dict().items()}
        lengths = (torch.arange(_ROWS) * 5 % (_LONGEST + 1)).tolist()
        ids = [torch.randint(_TABLE_ROWS, (length,)).tolist() for length in lengths]
        columns = {
            "ids": ids,
            "weights": [torch.rand(length).tolist() for length in lengths],
            "user": torch.arange(_ROWS).tolist(),
            "price": (torch.rand(_ROWS) * 3).tolist(),
            "age": (torch.rand(_ROWS) * 3).tolist(),
        }
    save_file(weights, folder / "weights.safetensors")
    pq.write_table(pa.table(columns), folder / "rows.parquet")
    items = {"item_input_uri": str(folder / "rows.parquet")} if family == "ItemFamily" else {}
    return {
        **items,
        "checkpoint_uri": str(folder / "weights.safetensors"),
        "sample_input_uri": str(folder / "rows.parquet"),
        "output_uri": str(folder / "out"),
    }


def recorded_sources(model: str, folder: Path) -> dict[str, str]:
    """Return the fields of a request that name a recorded model's config, checkpoint and rows."""
    [checkpoint] = (FIXTURES / model).glob("model.ckpt-*")
    return {
        "config": (FIXTURES / model / "pipeline.config").read_text(),
        "checkpoint_uri": str(checkpoint),
        "sample_input_uri": str(rows_of(model)),
        "output_uri": str(folder / "out"),
    }
