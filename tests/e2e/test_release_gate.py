"""Two real exports with a release gate, from the request to the promotion: the second one is worse."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from standardwebhooks import Webhook

from cli.main import main
from exporter.checkpoint.read import open_checkpoint
from exporter.manifest import Manifest
from exporter.reports.comparison import DIFF_NAME, Comparison
from exporter.reports.release_report import REPORT_NAME, ReleaseReport
from exporter.stages import Stage
from jobs.verdicts import ReleaseVerdict
from launcher.up import Stack, running_stack
from service.client.watch import watch
from slipway.client import Client, ExportRequest, JobState, JobView, RequestRefused
from slipway.rest.json_values import to_text
from tests.e2e.conftest import FIXTURES
from tests.jobs.hooks.factories import SECRET
from tests.service.hooks.receiver import Receiver, running_receiver

pytestmark = pytest.mark.slow

MODEL = FIXTURES / "deepfm"
ROWS = FIXTURES / "data" / "rec" / "train.parquet"
SETTINGS = {
    "SLIPWAY_CALLBACK_SECRETS": SECRET,
    "SLIPWAY_CALLBACK_NETWORKS": "127.0.0.0/8",
    "SLIPWAY_CALLBACK_POLL": "0.05",
    "SLIPWAY_LOG_FORMAT": "json",
}


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with running_stack(tmp_path_factory.mktemp("gate"), environment=SETTINGS) as stack:
        yield stack


@pytest.fixture(scope="module")
def receiver() -> Iterator[Receiver]:
    with running_receiver() as receiver:
        yield receiver


@pytest.fixture
def shuffled(tmp_path: Path) -> Path:
    """The recorded checkpoint with the rows of every table in another order: ids mean something else."""
    checkpoint = open_checkpoint(MODEL / "model.ckpt-11")
    torch.manual_seed(1)
    weights = {name: checkpoint.read(name).clone() for name in checkpoint.tensors()}
    tables = {name: weights[name] for name in weights if "embedding" in name}
    weights |= {name: table[torch.randperm(len(table))].contiguous() for name, table in tables.items()}
    save_file(weights, tmp_path / "shuffled.safetensors")
    return tmp_path / "shuffled.safetensors"


def export(stack: Stack, receiver: Receiver, checkpoint: Path, output: Path) -> JobView:
    request = ExportRequest(
        config=(MODEL / "pipeline.config").read_text(),
        checkpoint_uri=str(checkpoint),
        sample_input_uri=str(ROWS),
        output_uri=str(output),
        release_gate={"rows_uri": str(ROWS), "bless_untold": True},
        model="ranker",
        callback_url=receiver.url,
    )
    client = Client(stack.url)
    return watch(client, client.submit(request).id, lambda job: None)


def verdict_of(job: JobView) -> ReleaseVerdict:
    assert job.state is JobState.SUCCEEDED, job.failure
    (verdict,) = job.verdicts
    return ReleaseVerdict.model_validate_json(to_text(verdict))


def told(receiver: Receiver, job: JobView) -> dict[str, object]:
    """The data of the last event about a job."""
    for _ in range(100):
        events = [Webhook(SECRET).verify(each.body, each.headers) for each in receiver.received]
        for event in events:
            if (event["type"], event["subject"]) == ("export.finished", job.id):
                data: dict[str, object] = event["data"]
                return data
        receiver.wait_for(len(receiver.received) + 1)
    raise AssertionError("no event tells that the export has finished")


def test_a_release_that_is_worse_is_published_and_promoted_by_force_only(
    stack: Stack,
    receiver: Receiver,
    shuffled: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    client = Client(stack.url)

    first = export(stack, receiver, MODEL / "model.ckpt-11", tmp_path)
    assert (verdict_of(first).blessed, verdict_of(first).baseline) == (True, None), verdict_of(first)
    assert told(receiver, first)["blessed"] is True
    assert client.promote("ranker").job_id == first.id

    second = export(stack, receiver, shuffled, tmp_path)
    assert (verdict_of(second).blessed, verdict_of(second).baseline) == (False, first.id)
    assert "auc" in {finding.measure for finding in verdict_of(second).objections}
    assert second.towers[0].stage_seconds[Stage.RELEASE] > 0

    published = tmp_path / second.id
    assert Manifest.model_validate_json((published / "manifest.json").read_bytes()).job_id == second.id
    report = ReleaseReport.model_validate_json((published / REPORT_NAME).read_bytes())
    assert (report.blessed, report.rows) == (False, 320)
    difference = Comparison.model_validate_json((published / DIFF_NAME).read_bytes())
    assert (difference.old.job_id, difference.new.job_id) == (first.id, second.id)

    data = told(receiver, second)
    assert data["blessed"] is False
    assert "auc" in json.dumps(data["verdicts"])

    with pytest.raises(RequestRefused, match=r"not blessed: .*auc") as refused:
        client.promote("ranker")
    assert refused.value.code == "release_not_blessed"
    assert client.promoted("ranker").job_id == first.id
    assert client.promote("ranker", force=True).job_id == second.id
    audit = [
        line for line in (stack.data_dir / "logs" / "api.log").read_text().splitlines() if '"audit"' in line
    ]
    assert '"promote by force"' in audit[-1] and "auc" in audit[-1]

    assert main(["inspect", str(published)]) == 0
    shown = capsys.readouterr().out
    assert "not blessed" in shown and first.id in shown
