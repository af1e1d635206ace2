"""Recorded rows as the tensors that a published tower takes, for servers that load it."""

from pathlib import Path

import pytest
from torch import Tensor

from exporter.data.encode import encode_in_calls
from exporter.data.parquet import open_parquet
from exporter.serving.downloaded_tower import download_tower, open_lookup
from exporter.spec import TowerName
from slipway.loader import ArtifactInvalid, InputRefused, load, prepare


def tensors_of(artifact: str, tower: TowerName, rows: Path, folder: Path) -> dict[str, Tensor]:
    """Return the tensors of all rows, in one call; the artifact is fetched to `folder`."""
    fetched = download_tower(artifact, tower, folder)
    columns = [feature.name for feature in fetched.features]
    [batch] = open_parquet(str(rows)).batches(columns)
    [tensors] = encode_in_calls(batch.table, fetched.features, fetched.plan, where=batch.where)
    return tensors


def answer_of_a_server(artifact: str, rows: Path, folder: Path) -> dict[str, Tensor]:
    """Prepare and load the tower `model`, whose tables are sharded, and return its answer to the rows."""
    prepared = prepare(artifact, folder / "prepared")
    with pytest.raises(ArtifactInvalid, match="sharded tables"):
        load(prepared, "model")
    inputs = tensors_of(artifact, TowerName.MODEL, rows, folder / "fetched")
    with load(prepared, "model", lookup=open_lookup(prepared, TowerName.MODEL)) as tower:
        lengths = next(name for name in inputs if name.endswith("lengths"))
        with pytest.raises(InputRefused, match=lengths):
            tower({**inputs, lengths: inputs[lengths] + 1})
        return tower(inputs)
