"""Blueprint: the interface by which the pipeline builds, fills and describes a tower of any family."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor, nn

from exporter.checkpoint.read import Checkpoint
from exporter.spec import ExportSpec
from exporter.storage.places import Places
from exporter.towers.plan import PlannedTower
from exporter.towers.tower import Tower


@dataclass(frozen=True, kw_only=True)
class TowerFiles:
    """Files that go beside a tower's package, and what the manifest remarks on them."""

    contents: Mapping[str, bytes]  # by file name
    remarks: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, eq=False)
class FilledModule:
    """A module whose tensors are a checkpoint's; the names there are the module's behind a prefix."""

    module: nn.Module
    checkpoint: Checkpoint
    prefix: str


class Blueprint(ABC):
    """A tower that is about to be exported: its config and plan, and how a module is made of them."""

    def __init__(self, planned: PlannedTower) -> None:
        self.planned = planned

    @abstractmethod
    def build(self) -> Tower:
        """Return the tower, untrained."""

    def settle(self, checkpoint: Checkpoint) -> bool:
        """Take from the checkpoint what the config leaves open; return whether there was anything.

        A tower built before must then be built again.
        """
        return False

    @abstractmethod
    def fill(self, tower: Tower, checkpoint: Checkpoint) -> FilledModule:
        """Put the checkpoint's weights into the tower: all of them, or CheckpointMismatch is raised.

        Returns:
            The module in the tower that has the checkpoint's names.
        """

    @abstractmethod
    def try_out(self, tower: Tower, inputs: dict[str, Tensor]) -> None:
        """Run the tower once, eagerly, on the inputs of the trace; raise an error if that fails."""

    @abstractmethod
    def files(self, spec: ExportSpec, config_uri: str | None, places: Places) -> TowerFiles:
        """Return the files that go beside the package; others that the config names are read in `places`."""
