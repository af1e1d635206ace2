"""A generated catalogue and a model for it: items have authors, whose items have similar embeddings.

The model is the recorded hstu_match with larger tables, and an item tower that reads the item's bucket and
its author. The tables do not grow with the items: ids are hashed into buckets, as is usual.
"""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from safetensors.torch import save_file

from exporter.checkpoint.keymap import PREFIX
from exporter.config.parse import parse_pipeline_config
from exporter.models.registry import build_model

_FIXTURE = Path(__file__).parents[2] / "tests" / "fixtures" / "torcheasyrec" / "hstu_match"
_BUCKETS = 1_000_000
_AUTHORS = 100_000
_SEED = 11
_ROWS_WRITTEN = 1 << 20  # at a time
_ODD = 0x5851F42D4C957F2D  # multiplied by a row's number gives ids that look random and never repeat

_AUTHOR = f"""
    features {{
      id_feature {{
        feature_name: "author_id"
        expression: "item:author_id"
        embedding_name: "author_id_emb"
        embedding_dim: 16
        num_buckets: {_AUTHORS}
      }}
    }}
"""


def write_config(path: Path) -> None:
    """Write the recorded config with larger tables, and authors in the item tower."""
    text = (_FIXTURE / "pipeline.config").read_text().replace("num_buckets: 2000", f"num_buckets: {_BUCKETS}")
    candidates = text.index('sequence_name: "cand_seq"')
    first = text.index("    features {", candidates)
    text = text[:first] + _AUTHOR.lstrip("\n") + text[first:]
    of_group = '    feature_names: "cand_seq__video_id"\n'
    path.write_text(text.replace(of_group, of_group + '    feature_names: "cand_seq__author_id"\n'))


def write_checkpoint(config: Path, path: Path) -> None:
    """Write random weights; authors weigh more than buckets, so that items have neighbours."""
    torch.manual_seed(_SEED)
    weights = build_model(parse_pipeline_config(config.read_text())).state_dict()
    for name, tensor in weights.items():
        if "author_id_emb" in name:
            tensor.normal_(std=1.0)
        elif "video_id_emb" in name:
            tensor.normal_(std=0.35)
    save_file({PREFIX + name: tensor.contiguous() for name, tensor in weights.items()}, path)


def write_items(path: Path, rows: int) -> None:
    """Write items with an id, a bucket, an author (a few have many items) and an unused category."""
    random = np.random.default_rng(_SEED)
    schema = pa.schema(
        {"item_id": pa.int64(), "video_id": pa.int64(), "author_id": pa.int64(), "category": pa.int32()}
    )
    with pq.ParquetWriter(path, schema) as writer:
        for start in range(0, rows, _ROWS_WRITTEN):
            count = min(_ROWS_WRITTEN, rows - start)
            numbers = np.arange(start, start + count, dtype=np.uint64) * np.uint64(_ODD)
            columns = [
                (numbers >> np.uint64(1)).astype(np.int64),
                random.integers(0, _BUCKETS, count),
                (_AUTHORS * random.random(count) ** 2).astype(np.int64),
                random.integers(0, 40, count, dtype=np.int32),
            ]
            writer.write_table(pa.Table.from_arrays([pa.array(c) for c in columns], schema=schema))
