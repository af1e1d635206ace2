"""How much is too much is said before it is read."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from exporter.construction.input_limits import CheckpointFile, InputLimits, list_checkpoint_files
from exporter.errors import InvalidSpec
from exporter.spec import ExportSpec
from exporter.storage.open import open_store
from tests.service.requests import FIXTURES

PLENTY = InputLimits(checkpoint_files=100, checkpoint_bytes=1 << 30, rows_files=100, rows_bytes=1 << 30)


def spec_of(**uris: str) -> ExportSpec:
    return ExportSpec.model_validate({"config": "c", "checkpoint_uri": "/none", "output_uri": "/o", **uris})


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    for part in range(3):
        pq.write_table(pa.table({"a": [part]}), tmp_path / f"part-{part}.parquet")
    return tmp_path


@pytest.mark.parametrize("less", [{"checkpoint_files": 1}, {"checkpoint_bytes": 1000}])
def test_a_checkpoint_of_more_is_refused(less: dict[str, int]) -> None:
    spec = spec_of(checkpoint_uri=str(FIXTURES / "mind" / "model.ckpt-11"))
    PLENTY.require(spec)
    with pytest.raises(InvalidSpec, match="checkpoint_uri is more than"):
        PLENTY.model_copy(update=less).require(spec)


@pytest.mark.parametrize("less", [{"rows_files": 2}, {"rows_bytes": 600}])
@pytest.mark.parametrize("pattern", ["", "/part-*.parquet"])
def test_rows_of_more_are_refused(rows: Path, less: dict[str, int], pattern: str) -> None:
    spec = spec_of(sample_input_uri=f"{rows}{pattern}")
    PLENTY.require(spec)
    with pytest.raises(InvalidSpec, match="sample_input_uri is more than"):
        PLENTY.model_copy(update=less).require(spec)


def test_what_training_keeps_besides_does_not_count(tmp_path: Path) -> None:
    for folder in ("model", "optimizer"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "__0_0.distcp").write_bytes(bytes(1000))
    PLENTY.model_copy(update={"checkpoint_bytes": 1500}).require(spec_of(checkpoint_uri=str(tmp_path)))


def test_objects_of_a_store_count_as_well(s3_uri: str) -> None:
    for number in range(3):
        open_store(s3_uri).put_bytes(bytes(100), f"ckpt/model/__{number}_0.distcp")
    with pytest.raises(InvalidSpec, match="checkpoint_uri"):
        PLENTY.model_copy(update={"checkpoint_files": 2}).require(spec_of(checkpoint_uri=f"{s3_uri}/ckpt"))


def test_beside_one_object_others_do_not_count(s3_uri: str) -> None:
    for name in ("a", "b", "c"):
        open_store(s3_uri).put_bytes(bytes(100), f"ckpt/{name}.safetensors")
    one, few = f"{s3_uri}/ckpt/a.safetensors", PLENTY.model_copy(update={"checkpoint_bytes": 150})
    assert list(list_checkpoint_files(one)) == [CheckpointFile(name="a.safetensors", size=100)]
    few.require(spec_of(checkpoint_uri=one))


def test_an_object_that_is_not_there_is_for_others_to_miss(s3_uri: str) -> None:
    assert list(list_checkpoint_files(f"{s3_uri}/none.safetensors")) == []
