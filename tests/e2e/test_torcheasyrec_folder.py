"""A folder in TorchEasyRec's layout is called as its loader calls it, with torch and fbgemm alone."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from safetensors.torch import load_file

from exporter.artifact.read import read_manifest
from exporter.options.layout import PackageKind
from tests.e2e.conftest import FIXTURES, export_once
from tests.e2e.test_two_stage import predict
from tests.exporter.models.recorded import require_close, usual_scales

pytestmark = pytest.mark.slow

MODEL, PART = "dlrm_hstu", "model"
# `load_model_aot` and `CombinedModelWrapper.forward` of TorchEasyRec, without its locks and devices.
PROGRAM = """
import json
import sys
import fbgemm_gpu
import torch
from safetensors.torch import load_file, save_file

folder, inputs, outputs = sys.argv[1:]
assert json.load(open(folder + "/model_acc.json"))["ENABLE_AOT"] == "1"
sparse = torch.jit.load(folder + "/scripted_sparse_model.pt", map_location="cpu")
dense = torch._inductor.aoti_load_package(folder + "/aoti/aoti_model.pt2")
found = dense(sparse(load_file(inputs), torch.device("cpu"))[0])
save_file({name: value.contiguous() for name, value in found.items()}, outputs)
sys.exit("exporter" in sys.modules)
"""


@pytest.fixture(scope="module")
def artifact(run_folder: Path) -> Path:
    return Path(export_once(run_folder, MODEL, "--mode", "two_stage", "--layout", "torcheasyrec"))


def test_the_manifest_describes_both_halves(artifact: Path) -> None:
    [tower] = read_manifest(str(artifact)).towers
    assert tower.sparse is not None
    assert tower.sparse.kind is PackageKind.TORCHSCRIPT
    assert tower.sparse.package.path == "model/scripted_sparse_model.pt"
    lengths = {t.name: t.dtype for t in tower.sparse.tensors if t.name.endswith("_length")}
    assert (lengths["uih__sequence_length"], lengths["uih_action__sequence_length"]) == ("int64", "int32")
    assert tower.verified.read_back is not None
    assert tower.verified.read_back.from_checkpoint > 0


@pytest.mark.parametrize("batch", ["b1_short", "b7", "b32", "b3_empty"])
def test_torch_and_fbgemm_alone_compute_what_was_recorded(batch: str, artifact: Path, tmp_path: Path) -> None:
    recorded, outputs = FIXTURES / MODEL / "outputs", tmp_path / "out.safetensors"
    arguments = artifact / PART, recorded / f"{PART}__{batch}.in.safetensors", outputs
    command = [sys.executable, "-W", "ignore", "-c", PROGRAM, *map(str, arguments)]
    run = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert run.returncode == 0, run.stderr
    expected = load_file(recorded / f"{PART}__{batch}.out.safetensors")
    require_close(load_file(outputs), expected, usual_scales(MODEL, PART))


def test_it_is_predicted_with_and_checked_like_others(artifact: Path, tmp_path: Path) -> None:
    [index] = (FIXTURES / MODEL / "outputs").glob("index*.json")
    rows = next(each["parquet"] for each in json.loads(index.read_text())["batches"] if each["batch"] == "b7")
    columns = predict(str(artifact), PART, rows, tmp_path / "rows.parquet")
    assert len(next(iter(columns.values()))) == 7
