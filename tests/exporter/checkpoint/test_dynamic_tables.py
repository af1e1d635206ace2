"""Tables of dynamicemb are read as frozen maps; files that do not fit together are refused by name."""

from pathlib import Path

import pytest
import torch
from torch import Tensor

from exporter.checkpoint.dynamic_tables import CheckpointWithDynamicTables, WantedTables
from exporter.checkpoint.errors import IdMapBroken
from exporter.checkpoint.read import open_checkpoint
from exporter.errors import CheckpointMismatch, CheckpointUnreadable, SourceNotFound
from tests.dynamic_models import write_table
from tests.rank_checkpoints import write_ranks

MODULE = "model.embedding_group.emb_impls.__BASE__.ebc"
WEIGHT = f"{MODULE}.embedding_bags.t.weight"
IDS, ROWS = (f"{MODULE}.dynamicemb.t._mch_{name}" for name in ("sorted_raw_ids", "remapped_ids_mapping"))
PATH = "emb_impls.__BASE__.ebc.embedding_bags.t"
KEYS = torch.tensor([7, -3, 2**62, 10, 0])
VALUES = torch.arange(20, dtype=torch.float32).reshape(5, 4)


@pytest.fixture
def tables(tmp_path: Path) -> Path:
    """The folder of one collection; the tensors beside it have a placeholder of its table."""
    placeholder = {WEIGHT: [torch.zeros(3, 2)], "model.w": [torch.ones(2)]}
    write_ranks(tmp_path / "model", placeholder)
    return tmp_path / "dynamicemb" / f"model.{MODULE}"


def opened(
    tables: Path, wanted: WantedTables | None = None, *, unknown: float = 0.0
) -> CheckpointWithDynamicTables:
    wanted = {PATH: (4, unknown)} if wanted is None else wanted
    checkpoint = open_checkpoint(tables.parents[1], dynamic_tables=wanted)
    assert isinstance(checkpoint, CheckpointWithDynamicTables)
    return checkpoint


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_every_key_has_its_row_and_unknown_ids_the_last(tables: Path, ranks: int) -> None:
    write_table(tables, "t", KEYS, VALUES, ranks=ranks)
    checkpoint = opened(tables, unknown=0.25)
    ids, rows, weight = (checkpoint.read(name) for name in (IDS, ROWS, WEIGHT))
    found = {int(key): weight[row].tolist() for key, row in zip(ids, rows, strict=True)}
    expected = dict(zip(KEYS.tolist(), VALUES.tolist(), strict=True))
    assert found == expected | {2**63 - 1: [0.25] * 4}
    assert (ids.diff() > 0).all()
    assert (len(weight), int(rows[-1])) == (6, 5)
    assert checkpoint.tensors()[WEIGHT].shape == (6, 4)
    assert torch.equal(checkpoint.read("model.w"), torch.ones(2))


@pytest.mark.parametrize(("first", "end"), [(0, 6), (1, 3), (4, 6), (5, 6), (2, 2)])
def test_parts_are_those_of_the_whole(tables: Path, first: int, end: int) -> None:
    write_table(tables, "t", KEYS, VALUES, ranks=3)
    checkpoint = opened(tables)
    for name in (WEIGHT, IDS, ROWS):
        whole = checkpoint.read(name)
        assert torch.equal(checkpoint.rows(name, first, end), whole[first:end])
        pieces = checkpoint.pieces(name)
        joined = torch.cat([_values(piece.raw, piece.dtype) for piece in pieces])
        assert torch.equal(joined, whole.reshape(joined.shape))


def _values(raw: Tensor, dtype: torch.dtype) -> Tensor:
    return raw.contiguous().view(dtype)


def test_a_table_without_keys_has_the_row_of_unknown_ids(tables: Path) -> None:
    write_table(tables, "t", KEYS[:0], VALUES[:0], ranks=2)
    checkpoint = opened(tables, unknown=-1.0)
    assert checkpoint.read(WEIGHT).tolist() == [[-1.0] * 4]
    assert checkpoint.read(IDS).tolist() == [2**63 - 1]


def test_any_key_of_64_bits_is_found(tables: Path) -> None:
    keys = torch.tensor([2**63 - 1, -(2**63)])
    write_table(tables, "t", keys, VALUES[:2])
    checkpoint = opened(tables)
    assert checkpoint.read(IDS).tolist() == [-(2**63), 2**63 - 1, 2**63 - 1]
    assert checkpoint.read(ROWS).tolist() == [1, 0, 2]


def test_a_table_in_another_collection_is_another_table(tables: Path) -> None:
    write_table(tables, "t", KEYS, VALUES)
    sequences = tables.parent / "model.model.embedding_group.seq_emb_impls.__BASE__.ec_dict.4"
    write_table(sequences, "t", KEYS[:2], VALUES[:2])
    path = "seq_emb_impls.__BASE__.ec_dict.4.embeddings.t"
    checkpoint = opened(tables, {PATH: (4, 0.0), path: (4, 0.0)})
    assert checkpoint.tensors()[WEIGHT].shape == (6, 4)
    assert checkpoint.tensors()[f"model.embedding_group.{path}.weight"].shape == (3, 4)


def test_the_digest_is_of_keys_and_rows_too(tables: Path) -> None:
    write_table(tables, "t", KEYS, VALUES)
    before = opened(tables).digest()
    write_table(tables, "t", KEYS, VALUES + 1)
    assert opened(tables).digest() != before
    (tables / "t_emb_scores.rank_0.world_size_1").write_bytes(b"else")
    write_table(tables, "t", KEYS, VALUES)
    assert opened(tables).digest() == before


def test_a_key_that_is_there_twice_is_named(tables: Path) -> None:
    write_table(tables, "t", torch.tensor([4, 9, 4]), VALUES[:3])
    with pytest.raises(IdMapBroken, match=r"embedding_bags\.t: key 4 is there twice"):
        opened(tables).read(IDS)


def test_a_missing_table_is_named(tables: Path) -> None:
    write_table(tables, "other", KEYS, VALUES)
    with pytest.raises(CheckpointMismatch, match=r"dynamicemb/…: keys and values of emb_impls.*\.t"):
        opened(tables)


def test_the_folder_of_the_weights_alone_is_refused_with_the_one_to_give(tables: Path) -> None:
    write_table(tables, "t", KEYS, VALUES)
    with pytest.raises(SourceNotFound, match="model/dynamicemb") as refused:
        open_checkpoint(tables.parents[1] / "model", dynamic_tables={PATH: (4, 0.0)})
    assert "give the folder around model/ and dynamicemb/" in refused.value.hint


BROKEN = [
    ("t_emb_keys.rank_1.world_size_2", None, "of 2 ranks, keys of rank 1 are missing"),
    ("t_emb_values.rank_0.world_size_2", None, "of 2 ranks, values of rank 0 are missing"),
    ("t_emb_keys.rank_0.world_size_3", b"", "there are files of 2 and of 3 ranks"),
    ("t_emb_keys.rank_2.world_size_2", b"", "there are files of more than 2 ranks"),
    ("t_emb_keys.rank_0.world_size_2", bytes(23), "rank_0.world_size_2 holds 23 bytes, no number of keys"),
    ("t_emb_values.rank_0.world_size_2", bytes(15), "rank_0.world_size_2 holds 15 bytes, no rows of"),
    ("t_emb_values.rank_0.world_size_2", bytes(16), "rank_0.world_size_2 holds 16 bytes, no rows of"),
    ("t_emb_values.rank_1.world_size_2", bytes(16), "rank_1.world_size_2 holds 16 bytes, no rows of 2 keys"),
]


@pytest.mark.parametrize(("file", "content", "problem"), BROKEN)
def test_files_that_do_not_fit_are_refused(
    tables: Path, file: str, content: bytes | None, problem: str
) -> None:
    write_table(tables, "t", KEYS, VALUES, ranks=2)
    if content is None:
        (tables / file).unlink()
    else:
        (tables / file).write_bytes(content)
    with pytest.raises(CheckpointUnreadable, match=problem) as refused:
        opened(tables)
    assert refused.value.where == f"dynamicemb/model.{MODULE}/t"
