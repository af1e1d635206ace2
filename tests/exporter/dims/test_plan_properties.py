"""Two inputs share a dim exactly when every batch that the row reader can produce gives them equal lengths.

Each case below tries a block of random configs; its id counts them.
"""

import random
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import combinations
from pathlib import Path

import pyarrow as pa
import pytest
from torch import Tensor

from exporter.config.parse import parse_pipeline_config
from exporter.config.schema import Feature
from exporter.data.encode import encode
from exporter.dims.plan import DimPlan, group_tensor_name, plan_dims, plan_group_tensors
from exporter.dims.sizes import sizes_of
from exporter.errors import InvalidRows
from exporter.models.embedding.embedding_group import EmbeddingGroup
from tests.exporter.dims.random_configs import (
    MAX_BATCH,
    RandomConfig,
    random_config,
    random_rows,
    shapes_agree,
)

CONFIG = Path(__file__).parents[2] / "fixtures" / "torcheasyrec" / "hstu_match" / "pipeline.config"
BLOCK, BLOCKS = 50, 8
FAIR, FREE = 12, 12  # batches per config: rows that keep to their sequences, rows of any lengths

blocks = pytest.mark.parametrize(
    "first",
    range(0, BLOCK * BLOCKS, BLOCK),
    ids=[
        f"configs {first} to {first + BLOCK - 1} of {BLOCK * BLOCKS}"
        for first in range(0, BLOCK * BLOCKS, BLOCK)
    ],
)


def _configs(first: int, *, widest: int = 0) -> Iterator[tuple[random.Random, RandomConfig]]:
    for seed in range(first, first + BLOCK):
        rng = random.Random(seed)
        yield rng, random_config(rng, widest=widest)


def _batches(rng: random.Random, features: tuple[Feature, ...], plan: DimPlan) -> list[dict[str, Tensor]]:
    """What the reader makes of random rows: tensors of fair ones, tensors or a refusal of free ones."""
    batches = [_read(random_rows(rng, features, fair=True), features, plan) for _ in range(FAIR)]
    for _ in range(FREE):
        try:
            batches.append(_read(random_rows(rng, features, fair=False), features, plan))
        except InvalidRows:
            continue
    return batches


def _read(rows: pa.Table, features: tuple[Feature, ...], plan: DimPlan) -> dict[str, Tensor]:
    return encode(rows, features, plan, where="rows")


def _differing(plan: DimPlan, batches: list[Mapping[str, Tensor]]) -> set[tuple[str, str]]:
    """The pairs of dims that had different sizes in some batch; all that share a dim must agree in each."""
    apart: set[tuple[str, str]] = set()
    for batch in batches:
        shapes = {name: tuple(tensor.shape) for name, tensor in batch.items()}
        sizes = sizes_of(plan, shapes)
        for tensor in plan.inputs:
            assert shapes_agree(tensor.shape, sizes, shapes[tensor.name]), (
                tensor,
                shapes[tensor.name],
                sizes,
            )
        names = sorted(sizes)
        apart |= {(a, b) for a, b in combinations(names, 2) if sizes[a] != sizes[b]}
    return apart


@blocks
def test_inputs_share_a_dim_exactly_when_all_rows_make_them_equal(first: int) -> None:
    for rng, config in _configs(first):
        plan = plan_dims(config.features, max_batch_size=MAX_BATCH)
        apart = _differing(plan, list(_batches(rng, config.features, plan)))
        assert apart == set(combinations(sorted(dim.name for dim in plan.dims), 2)), config


@blocks
def test_group_tensors_share_a_dim_exactly_when_all_rows_make_them_equal(first: int) -> None:
    pipeline = parse_pipeline_config(CONFIG.read_text())
    for rng, config in _configs(first, widest=1):
        named = {name for group in config.groups for name in group.features}
        features = tuple(feature for feature in config.features if feature.name in named)
        tower = replace(pipeline, features=features, groups=config.groups)
        embed = EmbeddingGroup(tower)
        plan = plan_group_tensors(tower, max_batch_size=MAX_BATCH)
        embedded = [
            embed(batch) for batch in _batches(rng, features, plan_dims(features, max_batch_size=MAX_BATCH))
        ]
        renamed = [{group_tensor_name(key): value for key, value in each.items()} for each in embedded]
        assert all(set(each) == {tensor.name for tensor in plan.inputs} for each in renamed)
        assert _differing(plan, list(renamed)) == set(combinations(sorted(d.name for d in plan.dims), 2)), (
            config
        )


def test_the_random_configs_reach_every_rule() -> None:
    """Blocks of configs without joined sequences, several values or weights would prove little."""
    configs = [config for first in range(0, BLOCK * BLOCKS, BLOCK) for _, config in _configs(first)]
    features = [feature for config in configs for feature in config.features]
    assert sum(bool(feature.sequence and feature.sequence.joined_by) for feature in features) > BLOCK
    assert sum(feature.is_multivalued and feature.is_sequence for feature in features) > BLOCK
    assert sum(feature.weighted for feature in features) > BLOCK
