"""The first run of README.md as a stranger types it, and what other pages do with its artifact."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from launcher.up import running_stack
from tests.architecture.tree import ROOT
from tests.documents.markdown import blocks_of
from tests.documents.runs import commands_to_run, follow

pytestmark = [pytest.mark.slow, pytest.mark.commands]

# As a worker with SLIPWAY_SIGNING_KEY does.
SIGN = """
openssl pkeyutl -sign -inkey signing-key.pem -rawin -in {0}/manifest.json -out {0}/manifest.json.sig
cp {0}/manifest.json {0}/manifest.json.sig .
"""
INPUTS = """
import json, pathlib, sys, safetensors.torch
artifact, tower = pathlib.Path(sys.argv[1]), sys.argv[2]
towers = json.loads((artifact / "manifest.json").read_text())["towers"]
[told] = [each["samples"] for each in towers if each["name"] == tower]
prefix = f"inputs/{told['cases'][0]['name']}/"
sample = safetensors.torch.load_file(artifact / told["file"]["path"])
inputs = {name.removeprefix(prefix): value for name, value in sample.items() if name.startswith(prefix)}
"""
IDS = ("01jd6v7x4mzq3w8c5kftn2rbha", "01k3v7x4mzq3w8c5kftn2rbha1")


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What following README.md publishes."""
    checkout = tmp_path_factory.mktemp("checkout")
    (checkout / "tests").symlink_to(ROOT / "tests")
    with running_stack(checkout / "data") as stack:
        first = f"export SLIPWAY_URL={stack.url}"
        ran = follow(commands_to_run("README.md"), checkout, first=first, seconds=540)
    assert len(ran) > 2 and [str(each) for each in ran if each.code] == []
    [artifact] = (checkout / ".slipway" / "artifacts").iterdir()
    assert "every answer is the published one" in ran[-1].output
    return artifact


@pytest.mark.parametrize("page", ["docs/serving.md", "docs/loader.md", "docs/comparing-releases.md"])
def test_the_page_can_be_followed(artifact: Path, tmp_path: Path, page: str) -> None:
    (tmp_path / "served").mkdir()
    places = {"/srv/models/": f"{tmp_path}/served/"}
    for name in IDS:
        shutil.copytree(artifact, tmp_path / name)
        places |= {f"{root}/{name}": str(tmp_path / name) for root in ("s3://models/feed", "artifacts")}
    shutil.copy(ROOT / "tests/fixtures/torcheasyrec/data/items.parquet", tmp_path)
    before = {"slipway inspect --verify": SIGN.format(tmp_path / IDS[0])}
    ran = follow(commands_to_run(page), tmp_path, places=places, before=before, seconds=400)
    assert ran and [str(each) for each in ran if each.code] == []


@pytest.mark.parametrize(("page", "tower"), [("docs/serving.md", "item"), ("docs/loader.md", "user")])
def test_its_python_answers_for_the_artifact(artifact: Path, tmp_path: Path, page: str, tower: str) -> None:
    """The page's first block of Python on two prepared folders; `inputs` is a sample request."""
    block = next(each for each in blocks_of(page, (ROOT / page).read_text()) if each.language == "python")
    for name in ("01jd6v7x", "01jd9k2m"):
        prepare = ["-m", "cli.main", "prepare", str(artifact), str(tmp_path / name)]
        subprocess.run([sys.executable, *prepare], cwd=ROOT, check=True)
    program = "\n".join([INPUTS, block.text.replace("/srv/models", str(tmp_path)), "assert outputs"])
    subprocess.run([sys.executable, "-c", program, str(artifact), tower], cwd=ROOT, check=True, timeout=120)
