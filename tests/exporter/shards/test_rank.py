"""One rank's rows: which they are, that they are the checkpoint's, and what is said of what is wrong."""

import os
import shutil
import signal
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from exporter.artifact.read import file_ref
from exporter.checkpoint.errors import WeightsNotFinite
from exporter.checkpoint.read import open_checkpoint
from exporter.distributed.ranks import Ranks
from exporter.dtypes import TableDtype
from exporter.errors import CheckpointMismatch, CheckpointUnreadable
from exporter.lowering.tables import RowErrors, quantise_table
from exporter.shards import write
from exporter.shards.rank import export_tables, export_tables_isolated, write_tables
from exporter.stages import StageEvent, no_progress
from tests.exporter.shards.conftest import FIXTURES, Shard, order_of, spec_of
from tests.exporter.stage_events import ignore_stages

MODEL = "dlrm_hstu_sharded"
VIDEOS = "embedding_group.seq_emb_impls.__BASE__.ec_dict.16.embeddings.video_id_emb.weight"


@pytest.mark.parametrize("ranks", [1, 3, 10])
def test_all_ranks_together_have_the_checkpoints_rows(
    ranks: int, shard: Shard, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(write, "PIECE_BYTES", 4000)
    sharded = shard(MODEL, ranks=ranks)
    checkpoint = open_checkpoint(FIXTURES / MODEL / "model.ckpt-0")
    files = [tmp_path / made.file.path for made in sharded.made if made.file]
    rows: dict[str, list[torch.Tensor]] = {}
    for file in files:
        for name, values in load_file(file).items():
            rows.setdefault(name, []).append(values)
    assert len(rows) == 7
    for name, shares in rows.items():
        assert torch.equal(torch.cat(shares), checkpoint.read(f"model.{name}"))


def test_quantised_rows_are_fbgemms_fused_ones_and_their_errors_add_up(shard: Shard, tmp_path: Path) -> None:
    sharded = shard(MODEL, ranks=3, tables={"layout": "sharded", "dtypes": {"video_id_emb": "int4"}})
    files = [load_file(tmp_path / made.file.path) for made in sharded.made if made.file]
    before = open_checkpoint(FIXTURES / MODEL / "model.ckpt-0").read(f"model.{VIDEOS}")
    fused = torch.ops.fbgemm.FloatOrHalfToFusedNBitRowwiseQuantizedSBHalf(before, 4)
    assert torch.equal(torch.cat([file[VIDEOS] for file in files]), fused)
    assert {values.dtype for file in files for name, values in file.items() if name != VIDEOS} == {
        torch.float32
    }
    together = RowErrors()
    for made in sharded.made:
        [(_, errors)] = made.errors
        together.join(errors)
    _, whole = quantise_table(before, TableDtype.INT4, name="video_id_emb")
    assert together.summarise().model_dump() == pytest.approx(whole.model_dump())


def test_every_rank_makes_the_same_plan_for_itself(shard: Shard) -> None:
    assert len({made.plan for made in shard("hstu_match", 1, ranks=3).made}) == 1


def copied(tmp_path: Path) -> Path:
    return Path(shutil.copytree(FIXTURES / MODEL / "model.ckpt-0", tmp_path / "copy"))


@pytest.mark.parametrize("damage", ["truncated", "missing"])
def test_a_damaged_shard_of_the_checkpoint_is_named(damage: str, tmp_path: Path) -> None:
    folder = copied(tmp_path)
    file = folder / "model" / "__1_0.distcp"
    file.chmod(0o600)
    file.write_bytes(file.read_bytes()[:2000]) if damage == "truncated" else file.unlink()
    order = order_of(spec_of(MODEL, tmp_path, checkpoint_uri=str(folder)), tmp_path, Ranks(rank=1, size=2))
    made = export_tables(order, ignore_stages)
    assert made.failure is not None
    assert made.failure.code == CheckpointUnreadable.code
    assert "__1_0.distcp" in made.failure.message


def test_a_row_that_is_no_number_fails_the_rank_that_has_it(tmp_path: Path) -> None:
    checkpoint = open_checkpoint(FIXTURES / MODEL / "model.ckpt-0")
    weights = {name: checkpoint.read(name).clone() for name in checkpoint.tensors()}
    weights[f"model.{VIDEOS}"][-1, 3] = torch.nan
    save_file(weights, tmp_path / "w.safetensors")
    spec = spec_of(MODEL, tmp_path, checkpoint_uri=str(tmp_path / "w.safetensors"))
    first, second = (order_of(spec, tmp_path, Ranks(rank=rank, size=2)) for rank in (0, 1))
    assert write_tables(first, tmp_path / "0", no_progress).file is not None
    with pytest.raises(WeightsNotFinite, match="video_id_emb"):
        write_tables(second, tmp_path / "1", no_progress)


def test_a_checkpoint_of_another_model_is_refused(tmp_path: Path) -> None:
    spec = spec_of(MODEL, tmp_path, checkpoint_uri=str(FIXTURES / "hstu_match" / "model.ckpt-11"))
    with pytest.raises(CheckpointMismatch):
        write_tables(order_of(spec, tmp_path, Ranks()), tmp_path / "0", no_progress)


def test_a_rank_sends_its_file_and_reports_one_stage(tmp_path: Path) -> None:
    spec = spec_of(MODEL, tmp_path)
    order = replace(order_of(spec, tmp_path, Ranks(rank=1, size=2)), is_helper=True)
    told = tmp_path / "told"

    def tell(event: StageEvent) -> None:
        with told.open("a") as file:
            file.write(f"{event.tower} {event.stage} {event.kind}\n")

    made = export_tables(order, tell)
    assert made.uploaded is not None and made.file is not None
    assert file_ref(made.file.path, tmp_path / "out" / "job" / made.file.path) == made.file
    lines = told.read_text().splitlines()
    assert (lines[0], lines[-1]) == ("model.1 tables started", "model.1 tables finished")


def test_what_cannot_be_sent_is_told_as_that(tmp_path: Path) -> None:
    rival = tmp_path / "out/job/tables/model/rows-1-of-2.safetensors"
    rival.parent.mkdir(parents=True)
    rival.write_text("another attempt's")
    spec = spec_of(MODEL, tmp_path)
    made = export_tables(order_of(spec, tmp_path, Ranks(rank=1, size=2)), ignore_stages)
    assert made.upload_failure is not None and made.upload_failure.code == "already_published"
    assert rival.read_text() == "another attempt's"


def test_what_a_dead_attempt_left_is_replaced(tmp_path: Path) -> None:
    left = tmp_path / "out/job/tables/model/rows-1-of-2.safetensors"
    left.parent.mkdir(parents=True)
    left.write_text("a dead attempt's")
    order = order_of(spec_of(MODEL, tmp_path), tmp_path, Ranks(rank=1, size=2))
    made = export_tables(
        replace(order, attempt=replace(order.attempt, replace_unfinished=True)), ignore_stages
    )
    assert made.file is not None and file_ref(made.file.path, left) == made.file


def test_a_process_that_is_killed_fails_its_tower_only(tmp_path: Path) -> None:
    order = order_of(spec_of(MODEL, tmp_path), tmp_path, Ranks(rank=1, size=2))
    made = export_tables_isolated(order, lambda event: os.kill(os.getpid(), signal.SIGKILL))
    assert made.died and made.failure is not None and made.failure.code == "tower_died"
    assert "tables on rank 1 was killed by SIGKILL" in made.failure.message


@pytest.mark.parametrize(
    ("dtype", "stored"),
    [(None, torch.float16), ("fp16", torch.float16), ("fp32", torch.float32), ("int8", torch.uint8)],
)
def test_rows_of_fp16_are_written_as_the_checkpoint_has_them_or_as_asked(
    dtype: str | None, stored: torch.dtype, shard: Shard, tmp_path: Path
) -> None:
    sharded = shard("dlrm_hstu_fp16", ranks=3, tables={"layout": "sharded", "dtype": dtype})
    files = [load_file(tmp_path / made.file.path) for made in sharded.made if made.file]
    found = torch.cat([file[VIDEOS] for file in files])
    before = open_checkpoint(FIXTURES / "dlrm_hstu_fp16" / "model.ckpt-11").read(f"model.{VIDEOS}")
    assert before.dtype is torch.float16 and found.dtype is stored
    if stored is torch.uint8:
        fused = torch.ops.fbgemm.FloatOrHalfToFused8BitRowwiseQuantized(before.float())
        assert torch.equal(found, fused)
        assert all(len(made.errors) == 7 for made in sharded.made)
    else:
        assert torch.equal(found, before.to(stored))
        assert not any(made.errors for made in sharded.made)
