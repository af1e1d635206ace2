"""A loaded tower proves itself by the sample requests that were published with it."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from exporter.artifact.read import file_ref
from exporter.samples.entry import SampleCase, SamplesEntry
from slipway.loader import ArtifactDamaged, ArtifactInvalid, ProofFailed, load, prepare, prove
from tests.slipway.loading.artifacts import INPUTS, change_manifest, flip_byte, read_manifest
from tests.slipway.loading.conftest import Artifacts

pytestmark = pytest.mark.slow

ALLOWED = 1e-5
SAMPLES = "user/samples.safetensors"
EMPTY = {"id.lengths": torch.zeros(2, dtype=torch.int64), "id.values": torch.zeros(0, dtype=torch.int64)}


def publish_samples(artifact: Path, *, wrong_by: float = 0.0, dtype: torch.dtype = torch.float32) -> None:
    """Add two requests to an artifact, the answer to the second of which is wrong."""
    tensors: dict[str, Tensor] = {}
    for name, inputs in {"batch_2": EMPTY, "batch_4": INPUTS}.items():
        answer = load(artifact, "user")(inputs)["emb"].clone()
        answer[-1, -1] += wrong_by if name == "batch_4" else 0.0
        tensors |= {f"inputs/{name}/{key}": tensor for key, tensor in inputs.items()}
        tensors[f"outputs/{name}/emb"] = answer.to(dtype)
    save_file(tensors, artifact / SAMPLES)
    cases = tuple(
        SampleCase(name=name, sizes={}, allowed={"emb": ALLOWED}) for name in ("batch_2", "batch_4")
    )
    samples = SamplesEntry(file=file_ref(SAMPLES, artifact / SAMPLES), cases=cases)
    [tower] = read_manifest(artifact).towers
    change_manifest(artifact, towers=(tower.model_copy(update={"samples": samples}),))


@pytest.fixture
def artifact(copied: Artifacts) -> Path:
    return copied.published("old")


def test_a_tower_answers_as_it_did_at_its_export(artifact: Path, tmp_path: Path) -> None:
    publish_samples(artifact, wrong_by=ALLOWED / 2)
    assert prove(load(artifact, "user"), artifact) == ("batch_2", "batch_4")
    prepared = prepare(artifact, tmp_path / "with samples")
    assert prove(load(prepared, "user"), prepared) == ("batch_2", "batch_4")


def test_an_answer_that_differs_by_more_is_no_proof(artifact: Path) -> None:
    publish_samples(artifact, wrong_by=0.5)
    with pytest.raises(ProofFailed, match=r"user tower, batch_4: emb differs by 0\.5, allowed 1e-05"):
        prove(load(artifact, "user"), artifact)


def test_an_answer_that_is_no_number_is_no_proof(artifact: Path) -> None:
    publish_samples(artifact, wrong_by=float("nan"))
    with pytest.raises(ProofFailed, match="emb differs by nan"):
        prove(load(artifact, "user"), artifact)


def test_an_answer_of_another_dtype_is_no_proof(artifact: Path) -> None:
    publish_samples(artifact, dtype=torch.float16)
    with pytest.raises(ProofFailed, match=r"emb is torch.float32 \(2, 3\), and was torch.float16 \(2, 3\)"):
        prove(load(artifact, "user"), artifact)


def test_without_requests_nothing_is_proved(artifact: Path) -> None:
    with pytest.raises(ProofFailed, match="published without sample requests"):
        prove(load(artifact, "user"), artifact)


def test_damaged_requests_are_refused(artifact: Path) -> None:
    publish_samples(artifact)
    flip_byte(artifact / SAMPLES, 200)
    with pytest.raises(ArtifactDamaged, match="its digest is not the published one"):
        prove(load(artifact, "user", check="never"), artifact)


def test_the_requests_of_another_release_are_refused(artifact: Path, artifacts: Artifacts) -> None:
    with pytest.raises(ArtifactInvalid, match="is of job job2, and the tower was loaded from that of job1"):
        prove(load(artifact, "user"), artifacts.published("new"))
