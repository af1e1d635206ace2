"""Exports of recorded models on this GPU pass the gate there, and their manifests say what they are for."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch

from tests.gpu.cases import CASES, IN_BOTH_MODES, QUANTISED, WITH_KERNELS, Case

if TYPE_CHECKING:
    from benchmarks.gpu.export_process import ExportResult
    from exporter.manifest import Manifest

FIXTURES = Path(__file__).parents[1] / "fixtures" / "torcheasyrec"
_RECORDED = 1e-3  # of an output's scale: recorded were fp32 outputs of a CPU


def manifest_of(export: "ExportResult") -> "Manifest":
    """Of an export that must have worked; its failure is the test's."""
    from exporter.artifact.read import read_manifest

    assert not export.failures, "\n".join(f"{tower}: {told}" for tower, told in export.failures.items())
    return read_manifest(str(export.artifact))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_every_tower_passes_the_gate_at_all_sizes(case: Case, export: "ExportResult") -> None:
    for tower in manifest_of(export).towers:
        sizes = {each.sizes.get("batch") for each in tower.verified.cases}
        assert all(each.passed for each in tower.verified.cases) and sizes >= {1, 2, 7, 32, 64}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_manifest_names_the_gpu_and_no_library(case: Case, export: "ExportResult") -> None:
    manifest = manifest_of(export)
    major, minor = torch.cuda.get_device_capability()
    assert (manifest.device, manifest.architecture) == ("cuda", f"sm_{major}{minor}")
    assert manifest.op_libraries == (), "a server needs none for what is compiled in"
    assert manifest.versions.cuda == torch.version.cuda


@pytest.mark.parametrize("case", [*IN_BOTH_MODES, *WITH_KERNELS], ids=lambda case: case.name)
def test_packages_give_the_recorded_outputs(case: Case, export: "ExportResult", tmp_path: Path) -> None:
    from safetensors.torch import load_file

    from exporter.serving.downloaded_tower import download_tower
    from exporter.verify.numerics import compare
    from exporter.verify.runner import PackageRunner
    from tests.exporter.models.recorded import usual_scales

    index = json.loads((FIXTURES / case.model / "outputs" / "index.json").read_text())
    for tower in manifest_of(export).towers:
        served = download_tower(str(export.artifact), tower.name, tmp_path / tower.name)
        with PackageRunner(served.chain, op_libraries=(), scratch=tmp_path, device="cuda") as runner:
            for batch in index["batches"]:
                if batch["part"].removesuffix("_tower") != tower.name or "error" in batch:
                    continue
                stem = FIXTURES / case.model / "outputs" / f"{batch['part']}__{batch['batch']}"
                inputs, expected = load_file(f"{stem}.in.safetensors"), load_file(f"{stem}.out.safetensors")
                given = runner.run({name: inputs[name] for name in served.chain[0].order})
                difference = compare(
                    expected,
                    {name: given[name] for name in expected},
                    usual=usual_scales(case.model, batch["part"]),
                )
                assert difference.within(_RECORDED), (batch["batch"], difference)


@pytest.mark.parametrize("case", IN_BOTH_MODES[:1], ids=lambda case: case.name)
def test_a_package_of_another_gpu_is_refused(case: Case, export: "ExportResult", tmp_path: Path) -> None:
    from exporter.errors import InvalidArtifact
    from exporter.serving.downloaded_tower import download_tower

    architecture, tower = manifest_of(export).architecture, manifest_of(export).towers[0].name
    other = shutil.copytree(export.artifact, tmp_path / "other")
    manifest = other / "manifest.json"
    manifest.write_text(manifest.read_text().replace(f'"{architecture}"', '"sm_70"'))
    with pytest.raises(InvalidArtifact, match="built for sm_70"):
        download_tower(str(other), tower, tmp_path / "here")


@pytest.mark.parametrize("case", QUANTISED, ids=lambda case: case.name)
def test_quantised_tables_are_told_with_what_they_cost(case: Case, export: "ExportResult") -> None:
    for tower in manifest_of(export).towers:
        assert tower.verified.fp32 is not None
        assert {str(table.dtype) for table in tower.embeddings} == {dict(case.changes)["tables"]}


@pytest.mark.parametrize("case", [*WITH_KERNELS[:1], *IN_BOTH_MODES[:1]], ids=lambda case: case.name)
def test_two_runners_on_two_streams_give_what_one_gives(
    case: Case, export: "ExportResult", tmp_path: Path
) -> None:
    manifest_of(export)
    command = [
        sys.executable,
        "-m",
        "tests.gpu.two_streams",
        str(export.artifact),
        "user",
        str(tmp_path),
    ]
    told = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)
    assert told.returncode == 0, told.stdout[-1000:] + told.stderr[-3000:]
