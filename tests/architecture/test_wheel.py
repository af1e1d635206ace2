"""The wheel holds the programs and the generated code, and nothing else."""

import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.architecture.tree import PROGRAMS, ROOT


@pytest.fixture(scope="module")
def wheel(tracked_files: list[str], tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    """A wheel built from a copy of the tree, because building leaves files behind."""
    top = tmp_path_factory.mktemp("wheel")
    for name in tracked_files:
        if not name.startswith("tests/"):
            (top / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, top / name)
    pip = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", "dist", "."]
    subprocess.run(pip, cwd=top, check=True, capture_output=True, text=True)
    (built,) = Path(top, "dist").glob("slipway-*.whl")
    return zipfile.ZipFile(built)


def test_it_holds_the_generated_code(wheel: zipfile.ZipFile) -> None:
    protos = {path.stem for path in ROOT.glob("protos/exporter/config/pb/*.proto")}
    generated = re.findall(r"exporter/config/pb/(\w+)_pb2\.py\b(?!i)", "\n".join(wheel.namelist()))
    assert protos == set(generated) != set()


def test_it_holds_every_module_of_the_programs(wheel: zipfile.ZipFile, tracked_files: list[str]) -> None:
    shipped = {name for name in tracked_files if name.split("/")[0] in PROGRAMS}
    assert shipped - set(wheel.namelist()) == set()


def test_it_holds_nothing_else(wheel: zipfile.ZipFile) -> None:
    tops = {name.split("/")[0] for name in wheel.namelist()}
    assert {top for top in tops if not top.endswith(".dist-info")} == set(PROGRAMS)
