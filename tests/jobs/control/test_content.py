"""The content key depends on everything that changes an artifact, and on nothing else."""

from exporter.spec import ExportSpec
from jobs.control.content import compute_content_key


def key_of(**changes: object) -> str | None:
    given = {"config": "", "checkpoint_uri": "x", "output_uri": "y", "mode": "two_stage", **changes}
    return compute_content_key(ExportSpec.model_validate(given), identify=lambda uri: ())


def test_the_number_of_ranks_shows_only_in_tables_that_are_in_shards() -> None:
    assert key_of(ranks=2) == key_of(ranks=3)
    assert key_of(ranks=2, tables="sharded") != key_of(ranks=3, tables="sharded")
    assert key_of(tables="sharded") != key_of() == key_of(tables="packaged")
