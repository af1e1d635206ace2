"""Stacks that live as long as the session, and the specs they export."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from exporter.spec import ExportSpec
from jobs.model import JobState
from tests.faults.cells import RESULTS, one_tower
from tests.faults.observer import wait_for_end
from tests.faults.report import ROWS, TABLE, is_whole, summary, table, write
from tests.faults.stack import BUCKET, FaultStack, fault_stack

FIXTURES = Path(__file__).parents[1] / "fixtures" / "torcheasyrec"
_MODEL = FIXTURES / "hstu_match"


def real_spec(stack: FaultStack) -> ExportSpec:
    """A recorded model, in the places where a training job would leave it."""
    s3 = stack.s3()
    places = {_MODEL / "pipeline.config": "in/pipeline.config"}
    places |= {FIXTURES / "data" / name: f"in/{name}" for name in ("items.parquet", "train.parquet")}
    checkpoint = _MODEL / "model.ckpt-11"
    files = [path for path in checkpoint.rglob("*") if path.is_file()]
    places |= {path: f"in/model.ckpt-11/{path.relative_to(checkpoint)}" for path in files}
    for path, key in places.items():
        s3.upload_file(str(path), BUCKET, key)
    return ExportSpec(
        config_uri=f"s3://{BUCKET}/in/pipeline.config",
        checkpoint_uri=f"s3://{BUCKET}/in/model.ckpt-11",
        item_input_uri=f"s3://{BUCKET}/in/items.parquet",
        sample_input_uri=f"s3://{BUCKET}/in/train.parquet",
        output_uri=f"s3://{BUCKET}/out",
        max_batch_size=64,
    )


def light_spec(stack: FaultStack) -> ExportSpec:
    """The spec of attempts that export nothing: checkpoint and rows are a few bytes each."""
    s3 = stack.s3()
    for name in ("weights", "items.parquet", "train.parquet"):
        s3.put_object(Bucket=BUCKET, Key=f"in/{name}", Body=b"no more is read")
    return ExportSpec(
        config=(_MODEL / "pipeline.config").read_text(),
        checkpoint_uri=f"s3://{BUCKET}/in/weights",
        item_input_uri=f"s3://{BUCKET}/in/items.parquet",
        sample_input_uri=f"s3://{BUCKET}/in/train.parquet",
        output_uri=f"s3://{BUCKET}/out",
    )


@pytest.fixture(scope="module")
def light(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FaultStack]:
    with fault_stack(tmp_path_factory.mktemp("f") / "s", "light") as stack:
        yield stack


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FaultStack]:
    with fault_stack(tmp_path_factory.mktemp("f") / "s", "real") as stack:
        warm = stack.submit(one_tower(real_spec(stack)))  # compiles, so that the attempts after it need not
        assert wait_for_end(stack.observer, warm, 900).state is JobState.SUCCEEDED
        yield stack


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the table of faults and their results."""
    if not RESULTS:
        return
    if not is_whole(RESULTS):
        terminalreporter.write_line(summary(RESULTS))
        return
    write(RESULTS)
    terminalreporter.write_line(f"{table(RESULTS)}\nthe table: {TABLE}; job by job: {ROWS}")
    terminalreporter.write_line("into docs/faults.md: python -m tests.faults.report")
