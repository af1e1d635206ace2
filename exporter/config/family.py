"""What every model's config says of itself, whatever its family: its towers and what they read."""

from abc import ABC, abstractmethod
from typing import ClassVar

from exporter.spec import TowerName

TWO_TOWERS = (TowerName.USER, TowerName.ITEM)
ONE_TOWER = (TowerName.MODEL,)


class FamilyConfig(ABC):
    """The settings of one model, by family a frozen dataclass; what only training reads is left out."""

    family: str  # the name of the model's message in a pipeline config
    towers: ClassVar[tuple[TowerName, ...]]  # those that it can be served as
    tables_are_shared: ClassVar[bool] = True  # False: each tower has tables of its own
    # Whether the item tower reads a jagged sequence in training, where one item per row is served.
    trains_on_candidate_sequences: ClassVar[bool] = False

    @abstractmethod
    def reads(self, tower: TowerName, group: str) -> bool:
        """Whether a tower reads a feature group."""

    def attends(self, _tower: TowerName) -> bool:
        """Whether a tower has HSTU layers."""
        return False

    @property
    def groups_in_step(self) -> tuple[tuple[str, ...], ...]:
        """Sets of jagged groups whose elements the model joins with each other."""
        return ()
