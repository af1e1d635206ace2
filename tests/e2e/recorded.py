"""Predictions of `slipway predict` for recorded rows, compared with what TorchEasyRec computed."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray

from cli.main import main
from tests.e2e.conftest import flat
from tests.exporter.models.recorded import FIXTURES, read_batch, tolerance_of, tower_of, usual_scales


def assert_as_recorded(artifact: str, model: str, batch: Mapping[str, str], folder: Path) -> None:
    """The artifact's packages predict what was recorded of one of the model's batches."""
    predicted = predict(artifact, batch["part"], FIXTURES / batch["parquet"], folder)
    if "error" in batch:  # TorchEasyRec fails on rows without any history
        assert all(np.isfinite(values).all() for values in predicted.values())
        return
    expected = read_batch(model, f"{batch['part']}__{batch['batch']}", "out")
    usual = usual_scales(model, batch["part"])
    assert predicted.keys() == expected.keys()
    for name, tensor in expected.items():
        values = tensor.numpy().flatten()
        scale = max(usual[name], float(np.abs(values).max(initial=0)))
        allowed = tolerance_of(model) * scale if tensor.is_floating_point() else 0
        np.testing.assert_allclose(
            predicted[name], values, rtol=0, atol=allowed, err_msg=f"{batch['batch']}, {name}"
        )


def predict(artifact: str, part: str, rows: Path, folder: Path) -> dict[str, NDArray[np.float64]]:
    """Predict rows and return the numbers of each output, row by row."""
    output = folder / rows.name
    command = ["predict", "--artifact", artifact, "--tower", tower_of(part)]
    assert main([*command, "--outputs-only", "--input", str(rows), "--output", str(output)]) == 0
    columns: dict[str, list[object]] = pq.read_table(output).to_pydict()
    return {name: np.array(list(flat(values))) for name, values in columns.items()}
