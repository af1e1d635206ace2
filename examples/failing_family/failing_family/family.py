"""The model family `last_clicks`."""

from collections.abc import Sequence

from exporter.families.family import Family, InputDeclaration, TowerDeclaration, TowerName
from failing_family.model import CLICKS, NUMBERS, LastClicksTower


class LastClicks(Family):
    """A family with one tower, which takes a fixed number of clicks per row; it ignores its config."""

    def towers(self, config: str) -> Sequence[TowerDeclaration]:
        clicks = InputDeclaration(name="clicks", dtype="float32", shape=("batch", CLICKS, NUMBERS))
        return [TowerDeclaration(inputs=[clicks])]

    def build(self, config: str, tower: TowerName) -> LastClicksTower:
        return LastClicksTower()
