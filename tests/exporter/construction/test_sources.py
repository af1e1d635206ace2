"""A checkpoint is read for its digest once, by as many ranks as there are."""

from multiprocessing import get_context
from pathlib import Path

from exporter.checkpoint.read import open_checkpoint
from exporter.construction.sources import fetch_checkpoint_once
from exporter.spec import ExportSpec
from tests.exporter.models.recorded import pipeline_of

CHECKPOINT = Path(__file__).parents[2] / "fixtures" / "torcheasyrec" / "dlrm_hstu_sharded" / "model.ckpt-0"


def digest_in(workspace: Path) -> str:
    spec = ExportSpec(config="", checkpoint_uri=str(CHECKPOINT), output_uri="unwritten")
    return fetch_checkpoint_once(spec, workspace, pipeline_of("dlrm_hstu"))[1].sha256


def test_ranks_find_one_digest_together(tmp_path: Path) -> None:
    with get_context("fork").Pool(3) as ranks:
        found = ranks.map(digest_in, [tmp_path] * 3)
        ranks.close()
        ranks.join()  # leaving the block ends them by SIGTERM, which a fork of this process may never hear
    assert found == [open_checkpoint(CHECKPOINT).digest()] * 3


def test_a_file_that_one_rank_has_read_is_not_read_again(tmp_path: Path) -> None:
    first = digest_in(tmp_path)
    [*read] = (tmp_path / "checkpoint").glob("*.sha256")
    assert len(read) == 3
    for result in read:
        result.write_text("another's finding")
    assert digest_in(tmp_path) != first
