"""An export whose config, checkpoint, rows, code cache and output lie in the store of another cloud."""

import subprocess
import sys
from pathlib import Path

import pytest

from exporter.artifact.read import read_manifest
from exporter.storage.open import open_store
from tests.e2e.recorded import assert_as_recorded
from tests.e2e.test_service_on_s3 import MODEL, upload_inputs
from tests.exporter.models.recorded import recorded_batches

pytestmark = [pytest.mark.slow, pytest.mark.families]

_SLIPWAY = "import sys; from cli.main import main; sys.exit(main(sys.argv[1:]))"


@pytest.mark.parametrize("kind", ["oss", "gs", "az"])
def test_everything_may_lie_in_another_cloud(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    uri = request.getfixturevalue(f"{kind}_uri")
    spec = upload_inputs(uri)
    monkeypatch.setenv("SLIPWAY_CODE_CACHE", f"{uri}/code")
    command = [
        "export",
        *("--config", str(spec.config_uri), "--checkpoint", spec.checkpoint_uri),
        *("--item-input", str(spec.item_input_uri), "--sample-input", str(spec.sample_input_uri)),
        *("--max-batch-size", "64", "--id-weights", "ignore", "--output", spec.output_uri),
    ]
    subprocess.run([sys.executable, "-c", _SLIPWAY, *command], check=True, timeout=900)
    [manifest] = [
        file.key for file in open_store(spec.output_uri).list() if file.key.endswith("/manifest.json")
    ]
    artifact = f"{spec.output_uri}/{manifest.removesuffix('/manifest.json')}"
    assert [tower.name for tower in read_manifest(artifact).towers] == ["user", "item"]
    for batch in (each for each in recorded_batches(MODEL) if each["batch"] in ("b7", "items_b7")):
        assert_as_recorded(artifact, MODEL, batch, tmp_path)
    assert len(open_store(f"{uri}/code").list("code")) == 2  # the code of both towers, for the next export
