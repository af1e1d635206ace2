"""Which rank has which rows of which table: TorchRec's own sharding plan, made alike on every rank.

Nothing is asked of the other ranks: whoever knows the tables and the number of ranks knows the plan.
"""

import hashlib
import warnings
from collections.abc import Mapping

import torch

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # fbgemm tells of what it was built without
    from torchrec.distributed.sharding_plan import calculate_shard_sizes_and_offsets
    from torchrec.distributed.types import (
        EmbeddingModuleShardingPlan,
        EnumerableShardingSpec,
        ParameterSharding,
        ShardingType,
        ShardMetadata,
    )

_KERNEL = "dense"  # TorchRec's name of tables that are read as they are


def row_wise_plan(tables: Mapping[str, tuple[int, int]], ranks: int) -> EmbeddingModuleShardingPlan:
    """The plan for tables of these rows and widths, in their order: each by rows, over all ranks."""
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
    """The rows, from and up to, of each table of which the rank has any."""
    rows = {}
    for name, sharding in plan.items():
        for shard in sharding.sharding_spec.shards:
            if shard.placement.rank() == rank:
                first, size = shard.shard_offsets[0], shard.shard_sizes[0]
                rows[name] = first, first + size
    return rows


def plan_digest(plan: EmbeddingModuleShardingPlan) -> str:
    """Equal where two ranks would cut the same tables, in the same order, in the same way."""
    told = [
        f"{name} {sharding.sharding_type} "
        f"{[(shard.shard_offsets, shard.shard_sizes, str(shard.placement)) for shard in shards]}"
        for name, sharding in plan.items()
        for shards in [sharding.sharding_spec.shards]
    ]
    return hashlib.sha256("\n".join(told).encode()).hexdigest()
