"""Training learns, repeats itself for a seed, and leaves a checkpoint in TorchEasyRec's layout."""

import json
from pathlib import Path

import pytest
from torch.distributed.checkpoint import FileSystemReader

from examples.movielens.prepare import prepare
from examples.movielens.train import Recipe, Trained, train

RECIPE = Recipe(steps=30, batch_size=8)


@pytest.fixture(scope="module")
def trained(raw: Path, tmp_path_factory: pytest.TempPathFactory) -> Trained:
    folder = tmp_path_factory.mktemp("trained")
    prepare(raw, folder)
    return train(folder, RECIPE)


def test_the_checkpoint_is_laid_out_as_training_leaves_it(trained: Trained) -> None:
    names = {str(path.relative_to(trained.checkpoint)) for path in trained.checkpoint.rglob("*")}
    assert names == {"model", "model/.metadata", "model/__0_0.distcp", "plan", "dataloader_state.json"}
    assert trained.checkpoint.name == "model.ckpt-30"
    assert trained.config == trained.checkpoint.with_name("pipeline.config")


def test_the_checkpoint_holds_both_towers_over_one_set_of_tables(trained: Trained) -> None:
    tensors = FileSystemReader(trained.checkpoint / "model").read_metadata().state_dict_metadata
    modules = {name.split(".")[1] for name in tensors}
    assert {"embedding_group", "user_tower"} <= modules
    assert all(name.startswith("model.") for name in tensors)
    tables = json.loads((trained.checkpoint / "plan").read_text())
    assert tables.keys() == {"model.embedding_group.emb_impls.__BASE__.ebc"}


def test_a_seed_repeats_the_training(trained: Trained, raw: Path, tmp_path: Path) -> None:
    prepare(raw, tmp_path)
    again = train(tmp_path, RECIPE)
    name = "model/__0_0.distcp"
    assert (again.checkpoint / name).read_bytes() == (trained.checkpoint / name).read_bytes()
