"""Artifacts for tests of the loader, compiled once per run, and copies that tests may damage."""

import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

from slipway.loader import prepare
from tests.shared import fill_once
from tests.slipway.loading.artifacts import INPUTS, Dense, Pooling, Whole, compiled, publish


@dataclass(frozen=True)
class Artifacts:
    """Folders of artifacts; each `prepared` one is below the folder of that name."""

    root: Path

    def published(self, name: str) -> Path:
        return self.root / name

    def prepared(self, name: str) -> Path:
        return self.root / "prepared" / name


def _fill(folder: Path) -> None:
    torch.manual_seed(3)
    old, new, wider, pooling, dense = Whole(), Whole(), Whole(hidden=9), Pooling(), Dense()
    code = compiled(old, INPUTS)
    publish(folder / "old", {"aoti_model.pt2": (code, old)}, "job1")
    publish(folder / "new", {"aoti_model.pt2": (code, new)}, "job2")
    publish(folder / "wider", {"aoti_model.pt2": (compiled(wider, INPUTS), wider)}, "job3")
    with torch.no_grad():
        pooled = pooling(INPUTS)
    lookups, layers = compiled(pooling, INPUTS), compiled(dense, pooled)
    two = {"sparse_model.pt2": (lookups, pooling), "aoti_model.pt2": (layers, dense)}
    publish(folder / "two", two, "job4")
    newer = {"sparse_model.pt2": (lookups, Pooling()), "aoti_model.pt2": (layers, Dense())}
    publish(folder / "two-new", newer, "job5")
    for name in ("old", "new", "wider", "two", "two-new"):
        prepare(folder / name, folder / "prepared" / name)


@pytest.fixture(scope="session")
def artifacts(run_folder: Path) -> Artifacts:
    """Artifacts that no test may change."""
    return Artifacts(fill_once(run_folder, "loader-artifacts", _fill))


@pytest.fixture
def copied(artifacts: Artifacts, tmp_path: Path) -> Artifacts:
    """Copies that a test may change."""
    for name in ("old", "prepared/old"):
        shutil.copytree(artifacts.root / name, tmp_path / name)
    return Artifacts(tmp_path)
