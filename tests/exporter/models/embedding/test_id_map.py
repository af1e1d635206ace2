"""Zero-collision hashing: ids are found in the recorded maps, whole and in the shards of several ranks."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from google.protobuf import text_format
from safetensors.torch import load_file
from torch import Tensor

from exporter.checkpoint.errors import IdMapBroken
from exporter.checkpoint.load import load_weights
from exporter.checkpoint.read import Checkpoint, open_checkpoint
from exporter.checkpoint.tensors import Piece, raw_of
from exporter.config.features.groups import read_groups
from exporter.config.features.read_features import read_features
from exporter.config.pb.pipeline_pb2 import EasyRecConfig
from exporter.errors import CheckpointMismatch
from exporter.models.embedding.embedding_group import EmbeddingGroup
from exporter.models.embedding.id_map import IdMap, settle_id_maps, training_only_names
from tests.exporter.models.random_configs import Draw, over_random_configs
from tests.exporter.models.recorded import FIXTURES, pipeline_of
from tests.rank_checkpoints import write_ranks

RECORDED = FIXTURES / "dcn_v2"
BATCHES = ["b1", "b1_empty", "b2", "b2_allempty", "b7", "b32", "b3_empty"]
PREFIX = "model.embedding_group."
IDS, ROWS = "_mch_sorted_raw_ids", "_mch_remapped_ids_mapping"
FREE = 2**63 - 1
POOLED = "emb_impls.__BASE__.mc_ebc"
MAPS = "_managed_collision_collection._managed_collision_modules"


def recorded_checkpoint() -> Checkpoint:
    [folder] = RECORDED.glob("model.ckpt-*")
    return open_checkpoint(folder)


def build() -> EmbeddingGroup:
    """The groups of dcn_v2, whatever its model makes of them."""
    message = text_format.Parse((RECORDED / "pipeline.config").read_text(), EasyRecConfig())
    features = read_features(message)
    groups = read_groups(message.model_config, features)
    return EmbeddingGroup(replace(pipeline_of("dbmtl"), features=features, groups=groups))


def load(checkpoint: Checkpoint) -> EmbeddingGroup:
    module = build()
    load_weights(module, checkpoint, prefix=PREFIX)
    settle_id_maps(module, lambda name: checkpoint.pieces(PREFIX + name))
    return module


def require_recorded(module: EmbeddingGroup, batch: str) -> None:
    outputs = RECORDED / "outputs" / f"model__{batch}"
    expected = load_file(f"{outputs}.mid.safetensors")
    groups = module(load_file(f"{outputs}.in.safetensors"))
    torch.testing.assert_close(groups["all"], expected["model.embedding_group[all]"], atol=1e-6, rtol=1e-5)
    elements = expected["model.embedding_group[c.sequence]"]
    longest = elements.shape[1]  # where all are empty, the recorded one has no place, and ours some of zeros
    torch.testing.assert_close(groups["c.sequence"][:, :longest], elements)
    assert not groups["c.sequence"][:, longest:].any()


@pytest.fixture(scope="module")
def recorded() -> EmbeddingGroup:
    return load(recorded_checkpoint())


@pytest.mark.parametrize("batch", BATCHES)
def test_embedded_groups_are_the_recorded_ones(recorded: EmbeddingGroup, batch: str) -> None:
    require_recorded(recorded, batch)


def test_all_names_of_the_checkpoint_are_known(recorded: EmbeddingGroup) -> None:
    stored = {name.removeprefix(PREFIX) for name in recorded_checkpoint().tensors() if PREFIX in name}
    assert stored <= training_only_names(recorded).union(recorded.state_dict())
    assert stored >= set(recorded.state_dict())


def split_by_ranks(checkpoint: Checkpoint, ranks: int) -> dict[str, list[Tensor]]:
    """Every tensor as this many ranks hold it: rows in parts, and in a part of a map the ids of its rows."""
    tensors = {name: checkpoint.read(name) for name in checkpoint.tensors()}
    parts = {
        name: list(tensor.tensor_split(ranks)) if name.endswith(".weight") and PREFIX in name else [tensor]
        for name, tensor in tensors.items()
    }
    for name in [name for name in tensors if name.endswith(IDS)]:
        rows = tensors[name.replace(IDS, ROWS)]
        owned = [torch.isin(rows, part) for part in torch.arange(len(rows)).tensor_split(ranks)]
        parts[name] = [tensors[name][mine] for mine in owned]
        parts[name.replace(IDS, ROWS)] = [rows[mine] for mine in owned]
    return parts


@pytest.mark.parametrize("ranks", [2, 3, 8])
def test_maps_of_several_ranks_are_merged(tmp_path: Path, ranks: int, recorded: EmbeddingGroup) -> None:
    parts = split_by_ranks(recorded_checkpoint(), ranks)
    several = [tensors for name, tensors in parts.items() if name.endswith(IDS)]
    assert any((torch.cat(tensors).diff() < 0).any() for tensors in several), "no map is out of order"
    module = load(open_checkpoint(write_ranks(tmp_path / "model", parts)))
    for batch in BATCHES:
        require_recorded(module, batch)
    held = recorded.state_dict()[f"{POOLED}.{MAPS}.z_emb.{IDS}"]
    ids = torch.cat([held, held + 1, held - 1, torch.tensor([0, -1, -(2**63), 2**62])])
    lengths = torch.ones(len(ids), dtype=torch.int64)
    item = {"item_zids.values": ids, "item_zids.lengths": lengths}
    whole, merged = (_pooled(each, item) for each in (recorded, module))
    torch.testing.assert_close(merged, whole, atol=0, rtol=0)


def _pooled(module: EmbeddingGroup, inputs: dict[str, Tensor]) -> Tensor:
    rows = module.get_submodule(f"{POOLED}.{MAPS}.z_emb")(inputs["item_zids.values"])
    weight = module.get_parameter(f"{POOLED}._embedding_module.embedding_bags.z_emb.weight")
    return weight[rows]


def filled(ids: list[int], rows: list[int]) -> IdMap:
    id_map = IdMap(len(ids))
    id_map.load_state_dict({IDS: torch.tensor(ids), ROWS: torch.tensor(rows)}, assign=True)
    return id_map


@over_random_configs
def test_ids_have_the_rows_that_a_dict_says(draw: Draw) -> None:
    size = draw.randint(1, 40)
    held = sorted({draw.randrange(-(2**63), FREE) for _ in range(draw.randrange(size))})
    rows = [*draw.sample(range(size - 1), size - 1), size - 1]
    plain = dict(zip(held, rows, strict=False))
    asked = [*held, *(each + 1 for each in held), *(draw.randint(-9, 9) for _ in range(20))]
    found = filled(held + [FREE] * (size - len(held)), rows)(torch.tensor(asked))
    assert found.tolist() == [plain.get(each, size - 1) for each in asked]


@over_random_configs
def test_parts_of_ranks_are_merged_as_one_dict(draw: Draw) -> None:
    """Each rank holds the ids of its own rows, sorted; its last slots are free."""
    plain: dict[int, int] = {}
    ids: list[int] = []
    rows: list[int] = []
    parts = []
    for _ in range(draw.randint(1, 5)):
        first, size = len(rows), draw.randint(1, 12)
        held = sorted({draw.randrange(-(2**63), FREE) for _ in range(draw.randrange(size))} - plain.keys())
        own = [first + row for row in draw.sample(range(size), size)]
        plain |= dict(zip(held, own, strict=False))
        ids += held + [FREE] * (size - len(held))
        rows += own
        parts.append(Piece(offset=(first,), raw=raw_of(torch.tensor(ids[first:])), dtype=torch.int64))
    id_map = filled(ids, rows)
    id_map.settle(parts, "map")
    asked = [*plain, *(each + 1 for each in plain), 0, -1]
    assert id_map(torch.tensor(asked)).tolist() == [plain.get(each, len(rows) - 1) for each in asked]


def test_a_new_map_sends_every_id_to_the_last_row() -> None:
    assert IdMap(4)(torch.tensor([0, 3, -1, FREE - 1])).tolist() == [3] * 4


BROKEN = [
    ([5, 3, FREE, FREE], [0, 1, 2, 3], r"not in ascending order: 5 is followed by 3 at 1"),
    ([3, 5, 9, FREE], [0, 4, 2, 3], r"names row 4 of a table that has 4 rows"),
    ([3, 5, 9, FREE], [0, -1, 2, 3], r"names row -1 of a table that has 4 rows"),
]


@pytest.mark.parametrize(("ids", "rows", "problem"), BROKEN)
def test_a_broken_map_is_refused(tmp_path: Path, ids: list[int], rows: list[int], problem: str) -> None:
    path = write_ranks(tmp_path / "model", {f"t.{IDS}": [torch.tensor(ids)]})
    pieces = open_checkpoint(path).pieces(f"t.{IDS}")
    with pytest.raises(IdMapBroken, match=problem) as refused:
        filled(ids, rows).settle(pieces, f"t.{IDS}")
    assert refused.value.where == f"t.{IDS}"


def test_a_missing_map_is_named(tmp_path: Path) -> None:
    name = f"{PREFIX}{POOLED}.{MAPS}.z_emb.{ROWS}"
    parts = {key: part for key, part in split_by_ranks(recorded_checkpoint(), 1).items() if key != name}
    with pytest.raises(CheckpointMismatch) as refused:
        load(open_checkpoint(write_ranks(tmp_path / "model", parts)))
    assert refused.value.missing == [name]
