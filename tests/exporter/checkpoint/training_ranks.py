"""Write the checkpoint of two ranks: `python -m tests.exporter.checkpoint.training_ranks RANK FOLDER`.

TorchRec shards a table by rows, one by columns, one whole on one rank and one on both, and torch saves them.
"""

import sys
import warnings
from pathlib import Path

import torch
from torch.distributed._shard.sharded_tensor import ShardedTensor

from exporter.distributed.fork_ranks import exit_process

ROWS, WIDTH = 7, 8
TABLES = ("by_rows", "by_columns", "on_one_rank", "on_both")
NAME = "model.ebc.embedding_bags.{}.weight"


def values_of(table: str) -> torch.Tensor:
    """Return the values of the whole table, the same on every rank."""
    start = 1000.0 * TABLES.index(table)
    return torch.arange(start, start + ROWS * WIDTH).reshape(ROWS, WIDTH)


def main(rank: int, folder: Path) -> None:
    warnings.simplefilter("ignore")
    import torch.distributed as dist
    from torch.distributed.checkpoint.state_dict_saver import save
    from torchrec import EmbeddingBagCollection, EmbeddingBagConfig
    from torchrec.distributed.model_parallel import DistributedModelParallel
    from torchrec.distributed.sharding_plan import (
        column_wise,
        construct_module_sharding_plan,
        data_parallel,
        row_wise,
        table_wise,
    )
    from torchrec.distributed.types import ShardingEnv, ShardingPlan

    dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=2)
    configs = [
        EmbeddingBagConfig(name=name, num_embeddings=ROWS, embedding_dim=WIDTH, feature_names=[name])
        for name in TABLES
    ]
    model = torch.nn.Module()
    model.ebc = EmbeddingBagCollection(configs, device=torch.device("meta"))
    kinds = (row_wise(), column_wise(ranks=[0, 1]), table_wise(rank=1), data_parallel())
    plan = construct_module_sharding_plan(
        model.ebc, dict(zip(TABLES, kinds, strict=True)), local_size=2, world_size=2, device_type="cpu"
    )
    whole = torch.nn.Module()
    whole.model = model
    sharded = DistributedModelParallel(
        whole,
        env=ShardingEnv.from_process_group(dist.group.WORLD),
        device=torch.device("cpu"),
        plan=ShardingPlan(plan={"model.ebc": plan}),
    )
    state = sharded.state_dict()
    for table in TABLES:
        fill(state[NAME.format(table)], values_of(table))
    save(state, checkpoint_id=folder / "model")
    dist.barrier()  # none leaves while another still reads from it
    dist.destroy_process_group()


def fill(tensor: object, values: torch.Tensor) -> None:
    """Return this rank's part of a sharded or of a whole tensor."""
    if not isinstance(tensor, ShardedTensor):
        assert isinstance(tensor, torch.Tensor)
        tensor.copy_(values)
        return
    for shard in tensor.local_shards():
        (row, column), (rows, columns) = shard.metadata.shard_offsets, shard.metadata.shard_sizes
        shard.tensor.copy_(values[row : row + rows, column : column + columns])


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]))
    # The checkpoint is whole. Threads of gloo sometimes abort the interpreter's shutdown (SIGABRT).
    exit_process(0)
