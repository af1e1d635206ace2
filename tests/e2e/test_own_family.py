"""The example of a custom model family: installed, trained, exported and served by its README's commands."""

import shutil
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from numpy.testing import assert_allclose

from exporter.artifact.read import read_manifest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "own_family"
SLIPWAY = [sys.executable, "-m", "cli.main"]
SOURCES = ["--config", "config.json", "--checkpoint", "model.safetensors", "--sample-input", "rows.parquet"]


def run(command: list[str], folder: Path) -> None:
    ended = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the example is installed; built from a copy, because building leaves files behind."""
    folder = tmp_path_factory.mktemp("install")
    shutil.copytree(EXAMPLE, folder / "copy")
    pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-build-isolation"]
    run([*pip, "--target", "site", "./copy"], folder)
    return folder / "site"


@pytest.fixture(scope="module")
def folder(site: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What training and the two commands left behind."""
    folder = tmp_path_factory.mktemp("deepfm")
    installed = ["env", f"PYTHONPATH={ROOT}:{site}", "SLIPWAY_FAMILIES=deepfm"]
    run([*installed, sys.executable, str(EXAMPLE / "train.py"), "."], folder)
    export = ["export", "--family", "deepfm", *SOURCES, "--max-batch-size", "64", "--output", "out"]
    run([*installed, *SLIPWAY, *export], folder)
    [artifact] = (folder / "out").iterdir()
    rows = ["--input", "rows.parquet", "--output", "served.parquet"]
    predict = ["predict", "--artifact", str(artifact), "--tower", "model", *rows]
    run(["env", f"PYTHONPATH={ROOT}", *SLIPWAY, *predict], folder)  # the family is not needed any more
    return folder


def test_the_package_computes_what_the_module_computes(folder: Path) -> None:
    served, eager = (
        pq.read_table(folder / f"{name}.parquet")["probability"].to_numpy() for name in ("served", "eager")
    )
    assert eager.max() - eager.min() > 0.1
    assert_allclose(served, eager, rtol=0, atol=1e-6)


def test_the_manifest_says_where_the_family_came_from(folder: Path) -> None:
    [artifact] = (folder / "out").iterdir()
    manifest = read_manifest(str(artifact))
    assert manifest.family == "deepfm"
    assert manifest.family_package is not None
    assert manifest.family_package.model_dump() == {"distribution": "own-family", "version": "0.1.0"}
    [tower] = manifest.towers
    assert [file.path for file in tower.files] == ["model/pipeline.config"]
    assert (artifact / "model" / "pipeline.config").read_text() == (folder / "config.json").read_text()
    assert tower.declaration is not None
    assert "genre.values has an id outside its table of 20 rows" in tower.demands
