"""A published tower, called by the names of its Triton model repository: see `tests.e2e.triton_backend`."""

import subprocess
import sys
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from exporter.artifact.read import find_tower, read_manifest
from exporter.spec import TowerName
from exporter.triton_server.names import input_names, output_names
from tests.e2e.conftest import FIXTURES
from tests.exporter.triton_server.model_repository import models_of, problems_of

_OPERATORS = Path(torch.__file__).parents[1] / "fbgemm_gpu"  # importing it would register them here too
_VARIABLES = [  # as docs/triton.md sets them in the server's image
    "AOTI_RUNTIME_CHECK_INPUTS=1",
    f"LD_LIBRARY_PATH={Path(torch.__file__).parent / 'lib'}:{_OPERATORS}",
    f"LD_PRELOAD={':'.join(str(path) for path in sorted(_OPERATORS.glob('*.so')))}",
]


def files_of(artifact: str, tower: str) -> dict[str, bytes]:
    """All files of a tower, by their paths below its folder."""
    root = Path(artifact, tower)
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def infer(
    artifact: str, tower: str, model: str, inputs: dict[str, Tensor], folder: Path
) -> dict[str, Tensor]:
    """The answer of a model, as Triton's backend gets it from the packages."""
    save_file(inputs, folder / "inputs.safetensors")
    paths = [str(folder / name) for name in ("inputs.safetensors", "outputs.safetensors")]
    program = [sys.executable, "-m", "tests.e2e.triton_backend", str(Path(artifact, tower, "triton")), model]
    subprocess.run(["env", *_VARIABLES, *program, *paths], cwd=FIXTURES.parents[2], check=True)
    return load_file(folder / "outputs.safetensors")


def assert_serves_samples(artifact: str, tower: TowerName, model: str, folder: Path) -> None:
    """Triton accepts the configurations, and the model answers the larger sample request as published."""
    configs = models_of(files_of(artifact, tower))
    assert [problem for config in configs.values() for problem in problems_of(config)] == []
    entry = find_tower(read_manifest(artifact), tower, artifact)
    assert entry.samples is not None
    case, samples = entry.samples.cases[-1], load_file(Path(artifact, entry.samples.file.path))
    inputs = input_names([each.name for each in entry.inputs])
    outputs = output_names([each.name for each in entry.outputs])
    request = {inputs[name]: samples[f"inputs/{case.name}/{name}"] for name in inputs}
    answer = infer(artifact, tower, model, request, folder)
    assert answer.keys() == set(outputs.values())
    for name, allowed in case.allowed.items():
        given, expected = answer[outputs[name]], samples[f"outputs/{case.name}/{name}"]
        assert (given.dtype, given.shape) == (expected.dtype, expected.shape)
        assert float((given.double() - expected.double()).abs().max()) <= allowed, name
