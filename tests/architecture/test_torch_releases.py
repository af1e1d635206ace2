"""Each supported release of torch has its pins, and its board."""

import re
import subprocess

import pytest

from exporter.torch_releases import DEFAULT, SUPPORTED, release_of
from tests.architecture.tree import ROOT

OTHERS = [release for release in SUPPORTED if release != DEFAULT]
NAMES = {"fbgemm-gpu-cpu", "torch", "torchrec", "triton"}


def pins(name: str) -> dict[str, str]:
    text = (ROOT / "requirements" / f"{name}.txt").read_text()
    return dict(re.findall(r"^([\w-]+)==(\S+)", text, re.MULTILINE))


def test_the_default_release_is_the_one_that_is_installed() -> None:
    assert release_of(pins("torch")["torch"]) == DEFAULT
    assert f"DEFAULT_TORCH := {DEFAULT}\n" in (ROOT / "Makefile").read_text()


def test_every_other_release_has_a_file_of_pins_and_no_other_file_has() -> None:
    files = {file.stem.removeprefix("torch-") for file in (ROOT / "requirements").glob("torch-*.txt")}
    assert files == set(OTHERS)


@pytest.mark.parametrize("release", OTHERS)
def test_pins_of_a_release_are_those_of_torch_and_what_goes_with_it(release: str) -> None:
    found = pins(f"torch-{release}")
    assert found.keys() == NAMES and release_of(found["torch"]) == release


def test_make_refuses_a_release_without_pins() -> None:
    answer = subprocess.run(
        ["make", "-n", "install", "TORCH=9.9"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert answer.returncode and "there are no pins for torch 9.9; TORCH is one of 2." in answer.stderr
