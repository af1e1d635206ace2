"""Assign the rows of tables to ranks by TorchRec's own sharding plan, which every rank computes alike.

Ranks do not communicate for it: the tables and the number of ranks determine the plan.
"""

import hashlib
import warnings
from collections.abc import Mapping

import torch

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # fbgemm warns of parts it was built without
    from torchrec.distributed.sharding_plan import calculate_shard_sizes_and_offsets
    from torchrec.distributed.types import (
        EmbeddingModuleShardingPlan,
        EnumerableShardingSpec,
        ParameterSharding,
        ShardingType,
        ShardMetadata,
    )

_KERNEL = "dense"  # TorchRec's name for tables that are read as they are


def row_wise_plan(tables: Mapping[str, tuple[int, int]], ranks: int) -> EmbeddingModuleShardingPlan:
    """Plan tables of the given (rows, width), in their order: the rows of each are split over all ranks."""
    kind = ShardingType.ROW_WISE.value
    plan = EmbeddingModuleShardingPlan()
    for name, shape in tables.items():
        table = torch.empty(shape, device="meta")
        sizes, offsets = calculate_shard_sizes_and_offsets(table, ranks, ranks, kind)
        shards = [
            ShardMetadata(shard_offsets=offset, shard_sizes=size, placement=f"rank:{rank}/cpu")
            for rank, (offset, size) in enumerate(zip(offsets, sizes, strict=True))
            if size[0]
        ]
        plan[name] = ParameterSharding(
            sharding_type=kind,
            compute_kernel=_KERNEL,
            ranks=[shard.placement.rank() for shard in shards],
            sharding_spec=EnumerableShardingSpec(shards),
        )
    return plan


def rows_of_rank(plan: EmbeddingModuleShardingPlan, rank: int) -> dict[str, tuple[int, int]]:
    """Return the rank's rows of each table as (first, end); tables without rows for it are left out."""
    rows = {}
    for name, sharding in plan.items():
        for shard in sharding.sharding_spec.shards:
            if shard.placement.rank() == rank:
                first, size = shard.shard_offsets[0], shard.shard_sizes[0]
                rows[name] = first, first + size
    return rows


def plan_digest(plan: EmbeddingModuleShardingPlan) -> str:
    """Return a digest that is equal on two ranks if they split the same tables, in the same order, alike."""
    lines = [
        f"{name} {sharding.sharding_type} "
        f"{[(shard.shard_offsets, shard.shard_sizes, str(shard.placement)) for shard in shards]}"
        for name, sharding in plan.items()
        for shards in [sharding.sharding_spec.shards]
    ]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()
