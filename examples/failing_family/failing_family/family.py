"""The family `last_clicks`, as Slipway asks for it."""

from collections.abc import Sequence

from exporter.families.family import Family, InputDeclaration, TowerDeclaration, TowerName
from failing_family.model import CLICKS, NUMBERS, LastClicksTower


class LastClicks(Family):
    """One tower, which takes a fixed number of clicks per row; its config is not read."""

    def towers(self, config: str) -> Sequence[TowerDeclaration]:
        clicks = InputDeclaration(name="clicks", dtype="float32", shape=("batch", CLICKS, NUMBERS))
        return [TowerDeclaration(inputs=[clicks])]

    def build(self, config: str, tower: TowerName) -> LastClicksTower:
        return LastClicksTower()
