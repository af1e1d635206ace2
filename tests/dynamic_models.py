"""Checkpoints with tables of dynamicemb, in the layout of its dumps, made of the recorded model with zch."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
from google.protobuf import text_format
from torch import Tensor

from exporter.checkpoint.read import open_checkpoint
from exporter.config.pb.pipeline_pb2 import EasyRecConfig
from exporter.construction.open_blueprint import open_blueprint
from exporter.construction.sources import fetch_checkpoint_once
from exporter.options.tables import TableLayout
from exporter.spec import ExportSpec
from exporter.towers.plan import plan_towers
from exporter.towers.tower import Tower
from tests.exporter.shards.conftest import spec_of
from tests.rank_checkpoints import write_ranks

RECORDED = Path(__file__).parent / "fixtures" / "torcheasyrec" / "dcn_v2"
MAPS = "._managed_collision_collection._managed_collision_modules."
FREE = 2**63 - 1
UNKNOWN = 0.5  # every number of the row of unknown ids


def write_table(folder: Path, table: str, keys: Tensor, rows: Tensor, *, ranks: int = 1) -> None:
    """Write a table as so many ranks dump it: a key belongs to the rank that is its remainder."""
    folder.mkdir(parents=True, exist_ok=True)
    owner = keys % ranks
    for rank in range(ranks):
        suffix = f"rank_{rank}.world_size_{ranks}"
        mine = owner == rank
        for item, values in (("keys", keys.numpy()), ("values", rows.numpy().astype(np.float32))):
            (folder / f"{table}_emb_{item}.{suffix}").write_bytes(values[mine.numpy()].tobytes())
        (folder / f"{table}_emb_scores.{suffix}").write_bytes(np.zeros(int(mine.sum()), np.uint64).tobytes())
    (folder / f"{table}_opt_args.json").write_text("{}")


def dynamic_config(text: str, *, unknown: float | None = None) -> str:
    """The config with `dynamicemb` in place of every `zch`."""
    config = text_format.Parse(text, EasyRecConfig())
    blocks = [entry.sequence_feature.features for entry in config.feature_configs]
    for entry in [*config.feature_configs, *(inner for block in blocks for inner in block)]:
        feature = getattr(entry, entry.WhichOneof("feature"))
        if "zch" in feature.DESCRIPTOR.fields_by_name and feature.HasField("zch"):
            feature.ClearField("zch")
            feature.dynamicemb.max_capacity = 100
            if unknown is not None:
                feature.dynamicemb.eval_initializer_args.value = unknown
    return text_format.MessageToString(config)


def write_dynamic_checkpoint(folder: Path, *, ranks: int, without: str = "") -> Path:
    """Write the recorded model's checkpoint, its zch tables as tables of dynamicemb; return the folder."""
    [recorded] = RECORDED.glob("model.ckpt-*")
    checkpoint = open_checkpoint(recorded)
    tensors = {name: checkpoint.read(name) for name in checkpoint.tensors()}
    write_ranks(folder / "model", {name: [each] for name, each in tensors.items() if ".mc_e" not in name})
    for name in tensors:
        module, maps, table = name.removesuffix("._mch_sorted_raw_ids").partition(MAPS)
        if not maps or not name.endswith("._mch_sorted_raw_ids") or table == without:
            continue
        keys, rows = frozen_rows(tensors, module, table)
        shuffled = torch.randperm(len(keys), generator=torch.Generator().manual_seed(0))
        collection = folder / "dynamicemb" / f"model.{module.replace('.mc_e', '.e')}"
        write_table(collection, table, keys[shuffled], rows[shuffled], ranks=ranks)
    return folder


def frozen_rows(tensors: Mapping[str, Tensor], module: str, table: str) -> tuple[Tensor, Tensor]:
    """The ids that a zch table holds, and the row of each."""
    ids = tensors[f"{module}{MAPS}{table}._mch_sorted_raw_ids"]
    rows = tensors[f"{module}{MAPS}{table}._mch_remapped_ids_mapping"]
    kind = "embedding_bags" if module.endswith("ebc") else "embeddings"
    weight = tensors[f"{module}._embedding_module.{kind}.{table}.weight"]
    return ids[ids != FREE], weight[rows[ids != FREE]]


def spec_for(checkpoint: Path, folder: Path) -> ExportSpec:
    text = dynamic_config((RECORDED / "pipeline.config").read_text(), unknown=UNKNOWN)
    return spec_of("dcn_v2", folder, config=text, checkpoint_uri=str(checkpoint))


def open_model(spec: ExportSpec, workspace: Path) -> Tower:
    """The model with its weights, by the steps of an export without shards."""
    spec = spec.model_copy(update={"tables": spec.tables.model_copy(update={"layout": TableLayout.PACKAGED})})
    assert spec.config is not None
    [planned] = plan_towers(spec, spec.config)
    blueprint = open_blueprint(planned, spec, spec.config)
    found, _ = fetch_checkpoint_once(spec, workspace, blueprint.build().config.pipeline)
    assert blueprint.settle(found)
    tower = blueprint.build()
    blueprint.fill(tower, found)
    return tower
