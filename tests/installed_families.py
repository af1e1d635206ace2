"""Packages that offer families, as pip would leave them: a module, and its entry point in metadata."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

SOUND = """
from exporter.families.family import Family, InputDeclaration, TowerDeclaration
from torch import nn

class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Linear(2, 1)

    def forward(self, inputs):
        return {"score": self.scale(inputs["x"]).squeeze(1)}

class Sound(Family):
    def towers(self, config):
        return [TowerDeclaration(inputs=[InputDeclaration(name="x", dtype="float32", shape=("batch", 2))])]

    def build(self, config, tower):
        return Scaled()
"""

Install = Callable[..., str]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Install a module that offers the family of its name; gives the name."""
    monkeypatch.syspath_prepend(tmp_path / "site")
    names: list[str] = []

    def installed(name: str, source: str = SOUND, *, offers: str = "Sound") -> str:
        metadata = tmp_path / "site" / f"{name}-1.2.dist-info"
        metadata.mkdir(parents=True)
        (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}-package\nVersion: 1.2\n")
        (metadata / "entry_points.txt").write_text(f"[slipway.families]\n{name} = {name}:{offers}\n")
        (tmp_path / "site" / f"{name}.py").write_text(source)
        names.append(name)
        return name

    yield installed
    for name in names:
        sys.modules.pop(name, None)
