"""What a package's refusal means in words, and its outputs as columns."""

from pathlib import Path

import pytest
import torch

from cli.main import main
from exporter.serving.predict import find_unmet_demand, to_column
from exporter.spec import Device, TowerName
from tests.jobs.factories import make_entry, make_manifest

DEMANDS = ("item.values has an id outside the 9 rows", "item.lengths does not add up")


@pytest.mark.parametrize(
    ("refusal", "meaning"),
    [
        ("Expected u10 <= 0 but received 2", DEMANDS[1]),
        ("Expected u10 <= 0 but received 3", "Expected u10 <= 0 but received 3"),
        ("expected size 8==9, stride 1==1 at dim=0", "expected size 8==9, stride 1==1 at dim=0"),
    ],
)
def test_a_refusal_is_the_demand_it_numbers(refusal: str, meaning: str) -> None:
    assert find_unmet_demand(refusal, DEMANDS) == meaning


@pytest.mark.parametrize("shape", [(2,), (2, 3), (2, 4, 3), (0, 4, 3)])
def test_an_output_is_a_column_of_lists_as_deep_as_it_has_axes(shape: tuple[int, ...]) -> None:
    values = torch.arange(24.0)[: torch.Size(shape).numel()].reshape(shape)
    assert to_column(values).to_pylist() == values.tolist()


def test_packages_for_a_gpu_that_is_not_here_are_refused_unseen(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = make_manifest("job1", make_entry(TowerName.USER))
    manifest = made.model_copy(update={"device": Device.CUDA, "architecture": "sm_999"})
    (tmp_path / "manifest.json").write_text(manifest.model_dump_json())
    words = ["--tower", "user", "--input", "x", "--output", str(tmp_path / "y.parquet")]
    assert main(["predict", "--artifact", str(tmp_path), *words]) == 1
    refusal = "the package was built for sm_999, and this machine lacks sm_999"
    assert f"error [invalid_artifact]: {refusal}" in capsys.readouterr().err
