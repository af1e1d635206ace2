"""A model whose tables lie in files of dynamicemb computes what the same rows behind zch's maps give."""

import shutil
from pathlib import Path

import pytest
import torch
from torch import nn

from exporter.config.render import render_pipeline_config
from exporter.construction.input_limits import list_checkpoint_files
from exporter.dims.plan import plan_dims
from exporter.distributed.ranks import Ranks
from exporter.errors import CheckpointMismatch, SourceNotFound
from exporter.shards.join import tables_file
from exporter.shards.layout import rows_path
from exporter.shards.lookup import build_lookup
from exporter.shards.rank import write_tables
from exporter.stages import no_progress
from exporter.storage.open import open_store
from exporter.towers.lookup import build_eager_lookup
from exporter.towers.plan import PlannedTower
from exporter.towers.view import published_tower, tower_configs
from tests.dynamic_models import RECORDED, UNKNOWN, open_model, spec_for, write_dynamic_checkpoint
from tests.exporter.models.recorded import load_recorded_weights, pipeline_of, read_batch, untrained
from tests.exporter.shards.conftest import order_of

BATCHES = ["b1", "b1_empty", "b2", "b7", "b32", "b3_empty"]


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_dynamic_checkpoint(tmp_path_factory.mktemp("checkpoint"), ranks=3)


def behind_zch() -> nn.Module:
    """The recorded model, with the row of unknown ids that the config of dynamicemb sets."""
    [config] = tower_configs(pipeline_of("dcn_v2"), None)
    tower = untrained(config)
    load_recorded_weights(tower.module, "dcn_v2")
    for name, weight in tower.module.named_parameters():
        if "._embedding_module." in name:
            with torch.no_grad():
                weight[-1] = UNKNOWN
    return tower.module


def test_outputs_are_those_of_the_same_rows_behind_zch(checkpoint: Path, tmp_path: Path) -> None:
    dynamic, zch = open_model(spec_for(checkpoint, tmp_path), tmp_path).module, behind_zch()
    for batch in BATCHES:
        inputs = read_batch("dcn_v2", f"model__{batch}", "in")
        with torch.no_grad():
            found, expected = dynamic(inputs), zch(inputs)
        for name, value in expected.items():
            torch.testing.assert_close(found[name], value, atol=1e-6, rtol=1e-6)


def test_shards_hold_rows_and_maps(checkpoint: Path, tmp_path: Path) -> None:
    spec, ranks = spec_for(checkpoint, tmp_path), 2
    orders = [order_of(spec, tmp_path, Ranks(rank=rank, size=ranks)) for rank in range(ranks)]
    planned, made = orders[0].planned, []
    for rank, order in enumerate(orders):
        local = tmp_path / rows_path(planned.name, rank, ranks)
        local.parent.mkdir(parents=True, exist_ok=True)
        made.append(write_tables(order, local, no_progress))
    assert isinstance(planned, PlannedTower)
    tables = tables_file(planned.name, made, spec.tables)
    config = published_tower(render_pipeline_config(planned.config), planned.name)
    size = spec.max_batch_size
    plan = plan_dims(config.pipeline.features, max_batch_size=size)
    looked_up = build_lookup(tables, config, plan, tmp_path, max_batch_size=size)
    eager = build_eager_lookup(open_model(spec, tmp_path), max_batch_size=size)
    for batch in BATCHES:
        inputs = read_batch("dcn_v2", f"model__{batch}", "in")
        expected, found = eager(inputs), looked_up(inputs)
        assert all(torch.equal(found[name], expected[name]) for name in expected), batch


def test_a_checkpoint_without_the_tables_is_refused(tmp_path: Path) -> None:
    [recorded] = RECORDED.glob("model.ckpt-*")
    given = shutil.copytree(recorded, tmp_path / "step")
    with pytest.raises(SourceNotFound, match="no folder .*/dynamicemb"):
        open_model(spec_for(given, tmp_path), tmp_path)
    (given / "dynamicemb").mkdir()
    with pytest.raises(CheckpointMismatch, match=r"3 missing: dynamicemb/…: keys and values of emb_impls"):
        open_model(spec_for(given, tmp_path), tmp_path)


def test_keys_and_rows_count_among_the_files_that_are_read(checkpoint: Path) -> None:
    listed = {file.name: file.size for file in list_checkpoint_files(str(checkpoint))}
    keys = [name for name in listed if "_emb_keys." in name]
    assert len(keys) == 9 and all(listed[name] % 8 == 0 for name in keys)
    assert not any("scores" in name or "opt_args" in name for name in listed)


def test_a_remote_checkpoint_is_fetched_with_its_keys_and_rows(
    checkpoint: Path, s3_uri: str, tmp_path: Path
) -> None:
    store = open_store(s3_uri)
    for file in checkpoint.rglob("*"):
        if file.is_file():
            store.put(file, f"step/{file.relative_to(checkpoint)}")
    remote = spec_for(checkpoint, tmp_path).model_copy(update={"checkpoint_uri": f"{s3_uri}/step"})
    listed = {file.name for file in list_checkpoint_files(str(checkpoint))}
    assert {file.name for file in list_checkpoint_files(f"{s3_uri}/step")} == listed
    open_model(remote, tmp_path)
    fetched = {
        str(path.relative_to(tmp_path / "checkpoint" / "files")) for path in tmp_path.rglob("*_emb_*.rank_*")
    }
    assert fetched == {name for name in listed if ".rank_" in name}
