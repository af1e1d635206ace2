"""What the pages about deploying tell to type, where it needs no container engine and no cluster."""

import shutil
from pathlib import Path

import pytest

from tests.architecture.tree import ROOT
from tests.documents.runs import commands_to_run, follow


@pytest.mark.parametrize("page", ["docs/quickstart.md", "deploy/helm/slipway/README.md"])
def test_the_page_can_be_followed(page: str, tmp_path: Path) -> None:
    for folder in ("docker", "deploy"):
        shutil.copytree(ROOT / folder, tmp_path / folder)
    ran = follow(commands_to_run(page), tmp_path)
    assert ran and [str(each) for each in ran if each.code] == []
