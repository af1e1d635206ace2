"""Settings of one model, whatever its family: which towers it has, and which feature groups they read."""

from abc import ABC, abstractmethod
from typing import ClassVar

from exporter.spec import TowerName

TWO_TOWERS = (TowerName.USER, TowerName.ITEM)
ONE_TOWER = (TowerName.MODEL,)


class FamilyConfig(ABC):
    """Settings of one model; each family has a frozen dataclass, without fields that only training reads."""

    family: str  # name of the model's message in a pipeline config
    towers: ClassVar[tuple[TowerName, ...]]  # towers that the model can be served as
    tables_are_shared: ClassVar[bool] = True  # False: each tower has tables of its own
    # Whether the item tower reads a jagged sequence in training, where one item per row is served.
    trains_on_candidate_sequences: ClassVar[bool] = False
    # Whether outputs are ids: they are computed in full precision, as another id is not an approximation.
    computes_ids: ClassVar[bool] = False
    # Jagged group whose elements are scored one by one; a server counts a row's candidates by its lengths.
    candidate_group: ClassVar[str | None] = None

    @abstractmethod
    def reads(self, tower: TowerName, group: str) -> bool:
        """Return whether a tower reads a feature group."""

    def reads_sequences(self, _tower: TowerName) -> bool:
        """Return whether a tower reads the sequence features of its groups, or only the others."""
        return True

    def attends(self, _tower: TowerName) -> bool:
        """Return whether a tower has HSTU layers."""
        return False

    @property
    def groups_in_step(self) -> tuple[tuple[str, ...], ...]:
        """Sets of jagged groups whose elements the model joins with each other."""
        return ()
