"""An artifact of the layout triton is a model repository, and an artifact like any other."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from cli.main import main
from exporter.artifact.read import fetch_tower, find_tower, read_manifest
from exporter.options.layout import Layout
from exporter.spec import Mode, TowerName
from tests.e2e.conftest import export_once
from tests.e2e.recorded import assert_as_recorded
from tests.e2e.triton_server import assert_serves_samples, files_of
from tests.exporter.models.recorded import recorded_batches
from tests.exporter.triton_server.model_repository import models_of

pytestmark = pytest.mark.slow

MODEL = "hstu_match"  # other families: test_other_families.py
TOWERS = (TowerName.USER, TowerName.ITEM)
BATCHES = [batch for batch in recorded_batches(MODEL) if batch["batch"] in ("b3_empty", "items_b7")]


@pytest.fixture(params=list(Mode))
def artifact(request: pytest.FixtureRequest, run_folder: Path) -> str:
    options = ("--layout", "triton", "--triton-prefix", "feed")
    return export_once(run_folder, MODEL, "--mode", request.param, *options)


@pytest.mark.parametrize("tower", TOWERS)
def test_a_repository_holds_a_model_per_package_and_one_that_clients_call(
    tower: TowerName, artifact: str
) -> None:
    models = models_of(files_of(artifact, tower))
    names = {f"feed_{tower}{part}" for part in ("", "_sparse", "_dense")}
    assert models.keys() == (names if read_manifest(artifact).mode is Mode.TWO_STAGE else {f"feed_{tower}"})


@pytest.mark.parametrize("tower", TOWERS)
def test_the_packages_answer_sample_requests_by_tritons_names(
    tower: TowerName, artifact: str, tmp_path: Path
) -> None:
    assert_serves_samples(artifact, tower, f"feed_{tower}", tmp_path)


def test_the_first_package_is_warmed_up_by_the_sample_requests(artifact: str) -> None:
    entry = find_tower(read_manifest(artifact), TowerName.USER, artifact)
    files = files_of(artifact, "user")
    first = "feed_user" if entry.sparse is None else "feed_user_sparse"
    warm_ups = models_of(files)[first].model_warmup
    assert entry.samples is not None
    assert [each.name for each in warm_ups] == [case.name for case in entry.samples.cases]
    samples = load_file(Path(artifact, entry.samples.file.path))
    for warm_up in warm_ups:
        for name in (each.name for each in entry.inputs):
            given, tensor = warm_up.inputs[f"ARGS[0][{name}]"], samples[f"inputs/{warm_up.name}/{name}"]
            assert tuple(given.dims) == tuple(tensor.shape)
            data = files[f"triton/{first}/warmup/{given.input_data_file}"]
            assert torch.equal(torch.frombuffer(bytearray(data), dtype=tensor.dtype), tensor.reshape(-1))


def test_the_manifest_names_the_packages_where_triton_has_them(artifact: str, tmp_path: Path) -> None:
    manifest = read_manifest(artifact)
    assert manifest.layout is Layout.TRITON
    for entry in manifest.towers:
        last = f"feed_{entry.name}" if entry.sparse is None else f"feed_{entry.name}_dense"
        assert entry.package.path == f"{entry.name}/triton/{last}/1/model.pt2"
        folder = fetch_tower(artifact, entry.name, tmp_path)
        assert (folder / "pipeline.config").is_file()
        assert (folder / "triton" / f"feed_{entry.name}" / "config.pbtxt").is_file()


@pytest.mark.parametrize("batch", BATCHES, ids=lambda batch: batch["batch"])
def test_it_predicts_like_any_other_artifact(batch: dict[str, str], artifact: str, tmp_path: Path) -> None:
    assert_as_recorded(artifact, MODEL, batch, tmp_path)


def test_it_proves_itself(artifact: str) -> None:
    assert main(["prove", artifact]) == 0
