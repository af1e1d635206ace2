"""The model family `deepfm`: the inputs of its tower, and how to build it."""

import json
from collections.abc import Sequence
from importlib.resources import files

from own_family.model import DeepFmTower
from slipway.families import Family, TowerDeclaration, TowerName, declaration_from_yaml


class DeepFm(Family):
    """torchrec's DeepFM; its config is JSON: `{"dim": 8, "hidden": 16}`."""

    def towers(self, config: str) -> Sequence[TowerDeclaration]:
        return declaration_from_yaml(files("own_family").joinpath("towers.yaml").read_text())

    def build(self, config: str, tower: TowerName) -> DeepFmTower:
        sizes = json.loads(config)
        return DeepFmTower(dim=sizes["dim"], hidden=sizes["hidden"])
