"""Train the two-tower model and save a checkpoint: `python -m examples.movielens.train OUT`.

OUT holds what `prepare` wrote. Beside it come pipeline.config and model.ckpt-<step>/, in the layout that
TorchEasyRec leaves behind. B rows, N items, D width of the embeddings.
"""

import argparse
import json
import shutil
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import torch
import torch.distributed.checkpoint as dcp
import torch.nn.functional as F
from torch import Tensor, nn

from examples.movielens.recall import embedding_scores, popularity_scores, recall_at
from exporter.config.parse import parse_pipeline_config
from exporter.config.schema import PipelineConfig
from exporter.data.rows import Rows, read_rows
from exporter.dims.plan import plan_dims
from exporter.models.blocks.dropout import Dropout
from exporter.models.registry import build_model

CONFIG = Path(__file__).with_name("pipeline.config")
_ALL_ROWS, _ALL_VALUES = 10**9, 10**12
_CANDIDATES = "cand_seq__item_id"
_NO_DROPOUT = Dropout(input=0, output=0, contextual=0)  # two or three epochs do not overfit


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """Settings of the training loop, which takes about a minute and a half on one core."""

    steps: int = 1400
    batch_size: int = 256
    table_rate: float = 1e-2  # learning rate of the embedding tables
    dense_rate: float = 6e-3  # learning rate of everything else
    temperature: float = 0.05
    seed: int = 0


@dataclass(frozen=True, kw_only=True)
class Trained:
    """The result of training, and its recall on the held-out items."""

    config: Path
    checkpoint: Path
    seconds: float
    recall: float  # at 10
    popularity: float  # recall at 10 of the most rated items


def train(folder: Path, recipe: Recipe) -> Trained:
    """Train on train.parquet, measure on heldout.parquet, save below `folder`."""
    torch.manual_seed(recipe.seed)
    config = Path(shutil.copy(CONFIG, folder / "pipeline.config"))
    pipeline = parse_pipeline_config(config.read_text())
    items = torch.tensor(pq.read_table(folder / "items.parquet", columns=["item_id"])["item_id"].to_numpy())
    model = build_model(pipeline, _NO_DROPOUT)
    started = time.perf_counter()
    rows = read_rows(
        str(folder / "train.parquet"), pipeline.features, limit=_ALL_ROWS, most_values=_ALL_VALUES
    )
    with _one_thread():
        fit(model, batches(rows, pipeline, items, recipe), items, recipe)
    seconds = time.perf_counter() - started
    recall, popularity = measure(model, pipeline, folder, items)
    checkpoint = save(model, folder, step=recipe.steps, last_row=len(rows) - 1)
    return Trained(
        config=config, checkpoint=checkpoint, seconds=seconds, recall=recall, popularity=popularity
    )


def fit(
    model: nn.Module, inputs: Iterator[tuple[dict[str, Tensor], Tensor]], items: Tensor, recipe: Recipe
) -> None:
    """Train with a softmax over all items, which are few enough: the rated one against every other."""
    place_of = torch.zeros(int(items.max()) + 1, dtype=torch.int64)
    place_of[items] = torch.arange(len(items))
    tables = [value for name, value in model.named_parameters() if name.startswith("embedding_group.")]
    dense = [value for name, value in model.named_parameters() if not name.startswith("embedding_group.")]
    optimizer = torch.optim.AdamW([{"params": tables}, {"params": dense}], betas=(0.9, 0.98))
    rates = [recipe.table_rate, recipe.dense_rate]
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, rates, total_steps=recipe.steps, pct_start=0.1)
    model.train()
    for step, (batch, targets_B) in enumerate(inputs, start=1):
        logits_BN = similarities(model, batch) / recipe.temperature
        loss = F.cross_entropy(logits_BN, place_of[targets_B])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        if step % 100 == 0:
            print(f"step {step:5d} of {recipe.steps}: loss {loss.item():.3f}", flush=True)


def batches(
    rows: Rows, pipeline: PipelineConfig, items: Tensor, recipe: Recipe
) -> Iterator[tuple[dict[str, Tensor], Tensor]]:
    """Yield random rows with every item as a candidate, and the item that each row should find."""
    plan = plan_dims(pipeline.features, max_batch_size=recipe.batch_size)
    random = np.random.default_rng(recipe.seed)
    for _ in range(recipe.steps):
        inputs = rows.select(random.integers(len(rows), size=recipe.batch_size)).tensors(plan)
        yield with_candidates(inputs, items), inputs[f"{_CANDIDATES}.values"]


def with_candidates(inputs: dict[str, Tensor], items: Tensor) -> dict[str, Tensor]:
    """Return the same rows with `items` as candidates, all of them in the first row."""
    lengths_B = torch.zeros_like(inputs[f"{_CANDIDATES}.lengths"])
    lengths_B[0] = len(items)
    return {**inputs, f"{_CANDIDATES}.values": items, f"{_CANDIDATES}.lengths": lengths_B}


def similarities(model: nn.Module, inputs: dict[str, Tensor]) -> Tensor:
    """Return the similarity of every row's user to every candidate."""
    outputs = model(inputs)
    scores_BN: Tensor = outputs["user_tower_emb"] @ outputs["item_tower_emb"].T
    return scores_BN


def measure(model: nn.Module, pipeline: PipelineConfig, folder: Path, items: Tensor) -> tuple[float, float]:
    """Return recall at 10 on the held-out items, for the model and for the most rated items."""
    rows = read_rows(str(folder / "heldout.parquet"), pipeline.features)
    plan = plan_dims(pipeline.features, max_batch_size=len(rows))
    model.eval()
    with torch.no_grad():
        outputs = model(with_candidates(rows.tensors(plan), items))
    scores = embedding_scores(outputs["user_tower_emb"].numpy(), outputs["item_tower_emb"].numpy())
    heldout = [int(item) for item in rows.columns[_CANDIDATES].values]
    seen = pq.read_table(folder / "heldout.parquet", columns=["seen"])["seen"].to_pylist()
    ratings = pq.read_table(folder / "items.parquet", columns=["ratings"])["ratings"].to_pylist()
    return (
        recall_at(10, scores, items.tolist(), heldout, seen),
        recall_at(10, popularity_scores(len(rows), ratings), items.tolist(), heldout, seen),
    )


def save(model: nn.Module, folder: Path, *, step: int, last_row: int) -> Path:
    """Write a distributed checkpoint as TorchEasyRec lays it out."""
    checkpoint = folder / f"model.ckpt-{step}"
    shutil.rmtree(checkpoint, ignore_errors=True)
    checkpoint.mkdir()
    state = {f"model.{name}": tensor for name, tensor in model.state_dict().items()}
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*torch.distributed is disabled")
        dcp.save(state, checkpoint_id=checkpoint / "model", no_dist=True)
    (checkpoint / "plan").write_text(json.dumps(_sharding_plan(state)))
    (checkpoint / "dataloader_state.json").write_text(json.dumps({"train.parquet:0": last_row}, indent=2))
    return checkpoint


def _sharding_plan(state: dict[str, Tensor]) -> dict[str, dict[str, dict[str, object]]]:
    """Return module -> table -> sharding; here every table is whole, on the only rank."""
    plan: dict[str, dict[str, dict[str, object]]] = {}
    for name in state:
        module, separator, table = name.removesuffix(".weight").partition(".embedding_bags.")
        if separator:
            plan.setdefault(module, {})[table] = {
                "sharding_type": "data_parallel",
                "compute_kernel": "dense",
                "ranks": [0],
            }
    return plan


@contextmanager
def _one_thread() -> Iterator[None]:
    """Use one thread: results repeat bit for bit, and two threads on two busy cores would mostly wait."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def main() -> None:
    """Train, save, and print how well the model does."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="folder that `prepare` has written")
    parser.add_argument("--steps", type=int, default=Recipe.steps)
    arguments = parser.parse_args()
    trained = train(arguments.folder, Recipe(steps=arguments.steps))
    print(f"trained in {trained.seconds:.0f} s; checkpoint {trained.checkpoint}")
    print(f"recall@10 {trained.recall:.4f}; most popular items {trained.popularity:.4f}")


if __name__ == "__main__":
    main()
