"""Proof that a published tower runs here: it gives the answers that were published with its samples."""

import tempfile
from collections.abc import Collection, Mapping
from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from exporter.artifact.signing import VerifyingKey
from exporter.errors import InvalidArtifact
from exporter.frozen import Frozen
from exporter.samples.entry import SampleCase, SamplesEntry, input_key, output_key
from exporter.serving.downloaded_tower import DownloadedTower, download_tower
from exporter.spec import TowerName
from exporter.verify.numerics import compare
from exporter.verify.runner import PackageRunner, Refused


class CaseProof(Frozen):
    """One sample request: how far the tower's answer is from the published one."""

    name: str
    sizes: dict[str, int]
    differences: dict[str, float] = {}  # output -> largest absolute difference
    problem: str = ""  # why it is no proof, in words; empty if it is one


class Proof(Frozen):
    """All sample requests of a tower."""

    tower: TowerName
    cases: tuple[CaseProof, ...]

    @property
    def passed(self) -> bool:
        return not any(case.problem for case in self.cases)


def prove(tower: DownloadedTower, *, scratch: Path) -> Proof:
    """Run a tower on its sample requests, in a fresh process.

    Raises:
        InvalidArtifact: it was published without samples, or their file is not what the manifest describes.
    """
    samples = tower.entry.samples
    if samples is None:
        raise InvalidArtifact(
            f"the {tower.entry.name} tower was published without sample requests",
            hint="export again with sample_rows of at least 1, or run `slipway check --artifact` on rows",
            where="sample_rows",
        )
    tensors = _read(samples, tower.root)
    runner = PackageRunner(
        tower.chain,
        op_libraries=tower.manifest.op_libraries,
        scratch=scratch,
        device=tower.manifest.device,
        tf32=tower.entry.tf32,
        lookup=tower.lookup,
    )
    with runner:
        cases = tuple(_prove_case(case, tower, samples.file.path, tensors, runner) for case in samples.cases)
    return Proof(tower=tower.entry.name, cases=cases)


def prove_artifact(
    artifact_uri: str, tower: TowerName, key: VerifyingKey | None = None, families: Collection[str] = ()
) -> Proof:
    """Fetch a tower, check its digests, and run it on its sample requests.

    Raises as `download_tower` and `prove` do.
    """
    with tempfile.TemporaryDirectory(prefix="slipway-prove-") as folder:
        scratch = Path(folder)
        fetched = download_tower(artifact_uri, tower, scratch / "artifact", key, families=families)
        return prove(fetched, scratch=scratch)


def _read(samples: SamplesEntry, root: Path) -> dict[str, Tensor]:
    path = samples.file.path
    try:
        return load_file(root / path)
    except (OSError, SafetensorError) as error:
        raise InvalidArtifact(f"{path} cannot be read: {error}", where=path) from error


def _prove_case(
    case: SampleCase, tower: DownloadedTower, file: str, tensors: Mapping[str, Tensor], runner: PackageRunner
) -> CaseProof:
    try:
        inputs = {each.name: tensors[input_key(case.name, each.name)] for each in tower.entry.inputs}
        answer = {each.name: tensors[output_key(case.name, each.name)] for each in tower.entry.outputs}
        allowed = {each.name: case.allowed[each.name] for each in tower.entry.outputs}
    except KeyError as error:
        raise InvalidArtifact(f"the samples of {file} lack {error}", where=file) from error
    try:
        outputs = runner.run(inputs)
    except Refused as refusal:
        return CaseProof(name=case.name, sizes=case.sizes, problem=f"the package refused it: {refusal}")
    if odd := outputs.keys() ^ answer.keys():
        return CaseProof(name=case.name, sizes=case.sizes, problem=f"outputs differ: {sorted(odd)}")
    found = {name: compare({name: answer[name]}, {name: outputs[name]}) for name in answer}
    return CaseProof(
        name=case.name,
        sizes=case.sizes,
        differences={name: each.largest for name, each in found.items() if not each.problem},
        problem="; ".join(
            f"{name}: {each.problem}"
            if each.problem
            else f"{name} differs by {each.largest:.3g}, allowed {allowed[name]:.3g}"
            for name, each in found.items()
            if each.problem or each.largest > allowed[name]
        ),
    )
