"""The example of a custom model family: installed, trained, exported and served by its README's commands."""

import shutil
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from numpy.testing import assert_allclose

from exporter.artifact.read import read_manifest
from tests.documents.runs import commands_to_run, follow

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "own_family"
# The package is built from a copy, because building leaves files behind, and installed beside it.
FIRST = """
pip() { python -m pip "$1" -q --no-deps --no-build-isolation --target site "$2"; }
export PYTHONPATH=$PWD/site:$PYTHONPATH
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the commands of its README.md leave behind."""
    checkout = tmp_path_factory.mktemp("checkout")
    shutil.copytree(EXAMPLE, checkout / "examples" / "own_family")
    alone = f"unset SLIPWAY_FAMILIES; export PYTHONPATH={ROOT}"  # predict does not need the family
    commands = commands_to_run("examples/own_family/README.md")
    ran = follow(commands, checkout, first=FIRST, before={"slipway predict": alone})
    assert ran and [str(each) for each in ran if each.code] == []
    return checkout / ".slipway" / "deepfm"


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
