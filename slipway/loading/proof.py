"""Proof that a loaded tower answers here as it did at its export: sample requests with their answers."""

from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from slipway.loading.errors import ArtifactInvalid, ProofFailed
from slipway.loading.layout.manifest import (
    MANIFEST_NAME,
    SampleCase,
    Tower,
    parse_manifest,
    read_manifest_bytes,
)
from slipway.loading.samples import read_samples
from slipway.loading.tower import LoadedTower


def prove(tower: LoadedTower, artifact: Path | str) -> tuple[str, ...]:
    """Call a tower with the sample requests of the artifact that it was loaded from; return their names.

    Each answer must be the published one, as far as the export allowed a difference.

    Args:
        tower: what `load` returned.
        artifact: the folder that `load` was given.

    Raises:
        ProofFailed: an answer is another one, or there are no sample requests.
        ArtifactInvalid: the folder has another artifact than the tower, or a damaged one.
        LoaderError: as a call of the tower does.
    """
    folder = Path(artifact)
    manifest = parse_manifest(read_manifest_bytes(folder), str(folder / MANIFEST_NAME))
    entry = manifest.tower(tower.name, str(folder))
    if manifest.job_id != tower.job_id:
        raise ArtifactInvalid(
            f"{folder} is of job {manifest.job_id}, and the tower was loaded from that of {tower.job_id}",
            where=str(folder),
        )
    if entry.samples is None:
        raise ProofFailed(f"the {tower.name} tower was published without sample requests", where=str(folder))
    tensors = read_samples(folder, entry.samples)
    for case in entry.sample_cases:
        _prove_case(tower, entry, case, tensors, str(folder / entry.samples.path))
    return tuple(case.name for case in entry.sample_cases)


def _prove_case(
    tower: LoadedTower, entry: Tower, case: SampleCase, tensors: Mapping[str, Tensor], where: str
) -> None:
    try:
        inputs = {each.name: tensors[f"inputs/{case.name}/{each.name}"] for each in entry.inputs}
        answer = {each.name: tensors[f"outputs/{case.name}/{each.name}"] for each in entry.outputs}
    except KeyError as error:
        raise ArtifactInvalid(f"the samples of {where} lack {error}", where=where) from error
    outputs = tower({name: tensor.to(tower.device) for name, tensor in inputs.items()})
    for name, expected in answer.items():
        if problem := _find_difference(outputs[name].cpu(), expected, case.allowed.get(name, 0.0)):
            raise ProofFailed(f"the {tower.name} tower, {case.name}: {name} {problem}", where=name)


def _find_difference(given: Tensor, expected: Tensor, allowed: float) -> str:
    """Return how an output differs from the answer by more than is allowed; empty if it does not."""
    if (given.dtype, given.shape) != (expected.dtype, expected.shape):
        return f"is {given.dtype} {tuple(given.shape)}, and was {expected.dtype} {tuple(expected.shape)}"
    if torch.equal(given, expected):
        return ""
    if not given.is_floating_point():
        return f"has {int((given != expected).sum())} other integers"
    largest = float((given.double() - expected.double()).abs().max())
    return "" if largest <= allowed else f"differs by {largest:.3g}, allowed {allowed:.3g}"
