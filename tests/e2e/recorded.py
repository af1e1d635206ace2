"""Predictions of `slipway predict` for recorded rows, compared with what TorchEasyRec computed."""

from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray
from safetensors.numpy import load_file

from cli.main import main
from tests.e2e.conftest import FIXTURES

_TOLERANCE = 1e-5


def assert_as_recorded(artifact: str, model: str, batch: Mapping[str, str], folder: Path) -> None:
    """The artifact's packages predict what was recorded of one of the model's batches."""
    predicted = predict(artifact, batch["part"], FIXTURES / batch["parquet"], folder)
    if "error" in batch:  # TorchEasyRec fails on rows without any history
        assert all(np.isfinite(values).all() for values in predicted.values())
        return
    recorded = FIXTURES / model / "outputs" / f"{batch['part']}__{batch['batch']}.out.safetensors"
    expected = load_file(recorded)
    assert predicted.keys() == expected.keys()
    for name, values in expected.items():
        np.testing.assert_allclose(
            predicted[name], values, rtol=0, atol=_TOLERANCE, err_msg=f"{batch['batch']}, {name}"
        )


def predict(artifact: str, part: str, rows: Path, folder: Path) -> dict[str, NDArray[np.float64]]:
    output = folder / rows.name
    command = ["predict", "--artifact", artifact, "--tower", part.removesuffix("_tower")]
    assert main([*command, "--input", str(rows), "--output", str(output)]) == 0
    columns: dict[str, list[object]] = pq.read_table(output).to_pydict()
    return {
        name: np.array(list(_numbers(values))).reshape(_shape(values)) for name, values in columns.items()
    }


def _numbers(values: object) -> Iterator[float]:
    if isinstance(values, list):
        for value in values:
            yield from _numbers(value)
    else:
        assert isinstance(values, int | float)
        yield values


def _shape(values: object) -> tuple[int, ...]:
    return (len(values), *_shape(values[0])) if isinstance(values, list) else ()
