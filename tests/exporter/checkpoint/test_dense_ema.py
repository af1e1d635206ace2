"""Averages over weights: what replaces what, and what is refused."""

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.distributed.checkpoint import save

from exporter.checkpoint.dense_ema import AveragedCheckpoint
from exporter.checkpoint.load import load_weights
from exporter.checkpoint.read import fetch_checkpoint, open_checkpoint
from exporter.errors import CheckpointMismatch, SourceNotFound
from exporter.spec import TowerName
from exporter.storage.open import open_store
from exporter.towers.view import training_tower
from tests.exporter.models.recorded import pipeline_of, untrained

pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is disabled")

EMA = "dlrm_hstu_ema/model.ckpt-11"
WEIGHTS = {
    "model.linear.weight": torch.zeros(2, 3),
    "model.linear.bias": torch.zeros(2),
    "model.user_tower.embedding_group.emb_impls.table.weight": torch.zeros(4, 2),
}


class Tower(nn.Module):
    """A table and a dense layer."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 2)
        tables = nn.ModuleDict({"emb_impls": nn.ModuleDict({"table": nn.Embedding(4, 2)})})
        self.user_tower = nn.ModuleDict({"embedding_group": tables})


def write(folder: Path, **averages: Tensor) -> Path:
    """A checkpoint of WEIGHTS with these averages."""
    counted = {name.replace("__", "."): value for name, value in averages.items()}
    save(dict(WEIGHTS), checkpoint_id=folder / "model", no_dist=True)
    save({**counted, "__n_averaged__": torch.tensor(3)}, checkpoint_id=folder / "dense_ema", no_dist=True)
    return folder


def test_averages_replace_the_weights_that_have_one(fixtures: Path) -> None:
    plain, averaged = (open_checkpoint(fixtures / EMA, averaged=averaged) for averaged in (False, True))
    [differing, same] = (
        f"model.{name}.weight"
        for name in (
            "_multitask_module.linear",
            "embedding_group.emb_impls.__BASE__.ebc.embedding_bags.user_id_emb",
        )
    )
    assert not torch.equal(averaged.read(differing), plain.read(differing))
    assert torch.equal(averaged.read(same), plain.read(same))
    assert averaged.tensors() == plain.tensors()
    assert averaged.digest() != plain.digest()


def test_averages_of_dense_embeddings_are_taken_apart(tmp_path: Path) -> None:
    autodis = "model.embedding_group.emb_impls.__BASE__.dense_ec.dense_embs.autodis#2#3#0_800000#0_100000"
    vector = (
        f"model.embedding_group.emb_impls.__BASE__.dense_ec.dense_embs.mlp#2#vdim#4#feature_name#{' ' * 12}v"
    )
    weights = {f"{autodis}.meta_emb_{name}.weight": torch.zeros(3, 2) for name in ("f_1", "f", "e")}
    weights |= {f"{autodis}.proj_w_{name}.weight": torch.zeros(3) for name in ("f_1", "f", "e")}
    weights |= {f"{vector}.proj_w_v.weight": torch.zeros(4, 2)}
    averages = {
        f"{autodis}.meta_emb": torch.arange(18.0).reshape(3, 3, 2),
        f"{autodis}.proj_w": torch.arange(9.0).reshape(3, 3),
        f"{vector}.proj_w": torch.ones(4, 2),
    }
    save(dict(weights), checkpoint_id=tmp_path / "model", no_dist=True)
    save(dict(averages), checkpoint_id=tmp_path / "dense_ema", no_dist=True)
    checkpoint = open_checkpoint(tmp_path, averaged=True)
    for place, name in enumerate(("e", "f", "f_1")):  # in alphabetical order
        for part in ("meta_emb", "proj_w"):
            found = checkpoint.read(f"{autodis}.{part}_{name}.weight")
            assert torch.equal(found, averages[f"{autodis}.{part}"][place])
            [piece] = checkpoint.pieces(f"{autodis}.{part}_{name}.weight")
            assert torch.equal(piece.raw.clone().view(torch.float32), found) and not any(piece.offset)
    assert torch.equal(checkpoint.read(f"{vector}.proj_w_v.weight"), torch.ones(4, 2))
    assert isinstance(checkpoint, AveragedCheckpoint)
    assert checkpoint.averaged == weights.keys()


def test_an_average_of_more_features_than_the_model_has_is_refused(tmp_path: Path) -> None:
    name = "model.embedding_group.emb_impls.__BASE__.dense_ec.dense_embs.mlp#2.proj_w"
    save({f"{name}_f.weight": torch.zeros(2)}, checkpoint_id=tmp_path / "model", no_dist=True)
    save({name: torch.ones(2, 2)}, checkpoint_id=tmp_path / "dense_ema", no_dist=True)
    with pytest.raises(CheckpointMismatch) as refused:
        open_checkpoint(tmp_path, averaged=True)
    assert refused.value.unexpected == [name]


def test_tables_need_no_average(tmp_path: Path) -> None:
    tower = Tower()
    averages = {"model__linear__weight": torch.ones(2, 3), "model__linear__bias": torch.ones(2)}
    load_weights(tower, open_checkpoint(write(tmp_path, **averages), averaged=True))
    assert torch.equal(tower.linear.weight, torch.ones(2, 3))
    assert torch.equal(
        tower.state_dict()["user_tower.embedding_group.emb_impls.table.weight"], torch.zeros(4, 2)
    )


def test_dense_weights_without_an_average_are_named(tmp_path: Path) -> None:
    checkpoint = open_checkpoint(write(tmp_path, model__linear__weight=torch.ones(2, 3)), averaged=True)
    with pytest.raises(CheckpointMismatch, match="1 missing: model.linear.bias") as refusal:
        load_weights(Tower(), checkpoint)
    assert refusal.value.where == "dense_ema"


def test_sequence_encoders_need_an_average_as_they_are_no_tables(tmp_path: Path) -> None:
    tower = untrained(training_tower(pipeline_of("dbmtl"), TowerName.MODEL))
    weights = {f"model.{name}": weight for name, weight in tower.module.state_dict().items()}
    save(weights, checkpoint_id=tmp_path / "model", no_dist=True)
    save({"__n_averaged__": torch.tensor(3)}, checkpoint_id=tmp_path / "dense_ema", no_dist=True)
    with pytest.raises(CheckpointMismatch) as refusal:
        load_weights(tower.module, open_checkpoint(tmp_path, averaged=True))
    named = {name.split(".")[2] for name in refusal.value.missing if "embedding_group" in name}
    assert named == {"_group_name_to_seq_encoders"}


def test_averages_of_no_weight_or_of_another_shape_are_named(tmp_path: Path) -> None:
    folder = write(tmp_path, model__gone=torch.ones(1), model__linear__bias=torch.ones(3))
    with pytest.raises(CheckpointMismatch) as refusal:
        open_checkpoint(folder, averaged=True)
    assert refusal.value.unexpected == ["model.gone"]
    assert refusal.value.mismatched == ["model.linear.bias: dense_ema (float32 [3]), model (float32 [2])"]


def test_a_checkpoint_without_averages_is_refused_where_they_are_asked_for(fixtures: Path) -> None:
    with pytest.raises(SourceNotFound, match="there is no .*dense_ema") as refusal:
        open_checkpoint(fixtures / "dlrm_hstu" / "model.ckpt-11", averaged=True)
    assert "use_dense_ema: false" in refusal.value.hint


def test_remote_averages_are_fetched_only_where_they_are_asked_for(
    fixtures: Path, s3_uri: str, tmp_path: Path
) -> None:
    store = open_store(s3_uri)
    for path in (fixtures / EMA).rglob("*"):
        if path.is_file():
            store.put(path, str(path.relative_to(fixtures / EMA)))
    plain = fetch_checkpoint(s3_uri, tmp_path / "plain")
    assert not (plain / "dense_ema").exists()
    fetched = open_checkpoint(fetch_checkpoint(s3_uri, tmp_path / "both", averaged=True), averaged=True)
    assert isinstance(fetched, AveragedCheckpoint)
    assert fetched.digest() == open_checkpoint(fixtures / EMA, averaged=True).digest()
