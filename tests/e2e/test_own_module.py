"""The page on modules of one's own, followed word by word: its files are written and its commands typed."""

import re
from pathlib import Path

import pytest

from exporter.artifact.read import read_manifest
from exporter.manifest import Manifest
from exporter.spec import TowerName
from tests.architecture.tree import ROOT
from tests.documents.runs import Ran, commands_to_run, follow

pytestmark = pytest.mark.slow

PAGE = "docs/own-module.md"
TEXT = (ROOT / PAGE).read_text()
FILES = ("two_tower.py", "server.py", "click_rate.py")  # in the order of the page's blocks of Python


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Ran]]:
    """The folder in which the page was followed, and each command by its beginning."""
    folder = tmp_path_factory.mktemp("own_module")
    for name, text in zip(FILES, re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL), strict=True):
        (folder / name).write_text(text)
    everything = follow(commands_to_run(PAGE), folder)
    assert [str(each) for each in everything if each.code != 0] == []
    return folder, {" ".join(each.command.split()[:2]): each for each in everything}


def manifest_in(folder: Path) -> Manifest:
    [artifact] = folder.iterdir()
    return read_manifest(str(artifact))


def test_the_plan_is_the_one_on_the_page(ran: tuple[Path, dict[str, Ran]]) -> None:
    [shown] = re.findall(r"```text\n(.*?)  …", TEXT, re.DOTALL)
    assert shown in ran[1]["python two_tower.py"].output


def test_both_towers_are_published_within_the_corrected_bounds(ran: tuple[Path, dict[str, Ran]]) -> None:
    manifest = manifest_in(ran[0] / "published")
    assert {tower.name for tower in manifest.towers} == {TowerName.USER, TowerName.ITEM}
    user = next(tower for tower in manifest.towers if tower.name is TowerName.USER)
    assert {dim.name: dim.high for dim in user.dims} == {"batch": 256, "user_id": None, "clicks": 256 * 50}
    assert manifest.family == "Tower" and manifest.family_package is not None
    assert manifest.family_package.distribution == "slipway.export"
    assert user.verified.read_back is not None and user.verified.read_back.from_checkpoint >= 4


def test_it_is_served_as_the_page_says(ran: tuple[Path, dict[str, Ran]]) -> None:
    assert ran[1]["python server.py"].output.endswith("torch.Size([2, 16])\n")


def test_a_family_in_a_file_is_planned_and_exported(ran: tuple[Path, dict[str, Ran]]) -> None:
    assert "item.lengths" in ran[1]["slipway plan"].output
    manifest = manifest_in(ran[0] / "rates")
    assert manifest.family == "ClickRate" and manifest.family_package is not None
    assert manifest.family_package.distribution == "click_rate.py"
    [tower] = manifest.towers
    assert "item.lengths is not 1 in every row" in tower.demands
