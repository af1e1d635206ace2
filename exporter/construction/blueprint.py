"""What the pipeline asks of a tower, whoever describes it: how it is built, filled and described."""

from abc import ABC, abstractmethod
from collections.abc import Mapping

import torch
from torch import Tensor

from exporter.checkpoint.keymap import PREFIX
from exporter.checkpoint.load import load_weights, require_match
from exporter.checkpoint.read import Checkpoint
from exporter.config.parse import parse_pipeline_config
from exporter.config.render import render_fg_json, render_model_acc, render_pipeline_config
from exporter.models.embedding.table_uses import look_up_in_pieces
from exporter.models.registry import build_tower, weight_names
from exporter.spec import ExportSpec, Tables
from exporter.towers.plan import PlannedTower
from exporter.towers.tower import Tower


class Blueprint(ABC):
    """A tower that is about to be exported: its config and plan, and what is made of them."""

    def __init__(self, planned: PlannedTower) -> None:
        self.planned = planned

    @abstractmethod
    def build(self) -> Tower:
        """The tower, untrained."""

    @abstractmethod
    def fill(self, tower: Tower, checkpoint: Checkpoint) -> None:
        """Put the checkpoint's weights into the tower, all of them or CheckpointMismatch."""

    @abstractmethod
    def try_out(self, tower: Tower, inputs: dict[str, Tensor]) -> None:
        """Run the tower once, eagerly, on the inputs it is to be traced on; raises what is wrong with it."""

    @abstractmethod
    def files(self, spec: ExportSpec) -> Mapping[str, str]:
        """What goes beside the package: file name to text."""


class ConfiguredTower(Blueprint):
    """A tower of one of TorchEasyRec's models, which Slipway builds from the pipeline config."""

    def __init__(self, planned: PlannedTower, tables: Tables) -> None:
        super().__init__(planned)
        self._tables = tables

    def build(self) -> Tower:
        with torch.device("meta"):  # its weights will be mapped files; until then it needs none
            return build_tower(self.planned.config, self.planned.plan)

    def fill(self, tower: Tower, checkpoint: Checkpoint) -> None:
        """As of every tower; tables that are to be in shards stay where they are, and are looked up there."""
        known = weight_names(parse_pipeline_config(self.planned.config.pipeline.text))
        if self._tables.sharded:
            require_match(tower.module, checkpoint, known=known)
            look_up_in_pieces(tower.module, lambda table: checkpoint.pieces(PREFIX + table.weight))
        load_weights(tower.module, checkpoint, known=known)

    def try_out(self, tower: Tower, inputs: dict[str, Tensor]) -> None:
        """Nothing to find out: Slipway's own modules take what they are planned to take."""

    def files(self, spec: ExportSpec) -> Mapping[str, str]:
        """What TorchEasyRec's servers read, for the tower's view."""
        config = self.planned.config
        return {
            "pipeline.config": render_pipeline_config(config),
            "fg.json": render_fg_json(config),
            "model_acc.json": render_model_acc(config, mode=spec.mode, max_batch_size=spec.max_batch_size),
        }
