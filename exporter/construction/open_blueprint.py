"""Choosing the blueprint of a tower: from the pipeline config, or from the package of a custom family."""

from dataclasses import replace

import torch
from torch import Tensor

from exporter.checkpoint.keymap import PREFIX
from exporter.checkpoint.load import load_weights, require_match
from exporter.checkpoint.read import Checkpoint
from exporter.config.features.tables import dynamic_tables, take_rows
from exporter.config.parse import parse_pipeline_config
from exporter.config.render import render_fg_json, render_model_acc, render_pipeline_config
from exporter.construction.blueprint import Blueprint, FilledModule, TowerFiles
from exporter.construction.declared_blueprint import open_declared_blueprint
from exporter.construction.feature_copies import copy_feature_files
from exporter.models.embedding.id_map import settle_id_maps
from exporter.models.embedding.table_uses import look_up_in_pieces, size_dynamic_tables
from exporter.models.registry import build_tower, weight_names
from exporter.options.tables import Tables
from exporter.spec import ExportSpec
from exporter.storage.places import Places
from exporter.towers.plan import PlannedTower, TowerToExport, UnopenedTower
from exporter.towers.tower import Tower


def open_blueprint(planned: TowerToExport, spec: ExportSpec, config_text: str) -> Blueprint:
    """Return the blueprint of a planned tower; this is where the code of a custom family is first loaded.

    Raises:
        FamilyError: the family cannot be loaded, raised, or declares what cannot be.
        InvalidSpec: the family has no such tower, or does not say how to package it in two stages.
    """
    if isinstance(planned, UnopenedTower):
        return open_declared_blueprint(planned, spec, config_text)
    return ConfiguredBlueprint(planned, spec.tables)


class ConfiguredBlueprint(Blueprint):
    """A tower of one of TorchEasyRec's models, which Slipway builds from the pipeline config."""

    def __init__(self, planned: PlannedTower, tables: Tables) -> None:
        super().__init__(planned)
        self._tables = tables
        self._shapes: dict[str, tuple[int, ...]] = {}  # of the checkpoint's tensors, once it is there

    def build(self) -> Tower:
        with torch.device("meta"):  # its weights will be mapped files; until then it needs none
            tower = build_tower(self.planned.config, self.planned.plan)
            size_dynamic_tables(tower.module, self._shapes)
        return tower

    def settle(self, checkpoint: Checkpoint) -> bool:
        """Take the rows of tables that a vocabulary or tokenizer sized, or that grew in training."""
        config = self.planned.config
        shapes = {name: meta.shape for name, meta in checkpoint.tensors().items()}
        self._shapes = {name.removeprefix(PREFIX): shape for name, shape in shapes.items()}
        pipeline = take_rows(config.pipeline, shapes)
        if pipeline == config.pipeline:
            return bool(dynamic_tables(pipeline))
        self.planned = replace(self.planned, config=replace(config, pipeline=pipeline))
        return True

    def fill(self, tower: Tower, checkpoint: Checkpoint) -> FilledModule:
        """Load the weights; tables to be sharded stay in the checkpoint's files and are looked up there."""
        known = weight_names(parse_pipeline_config(self.planned.config.pipeline.text))
        if self._tables.sharded:
            require_match(tower.module, checkpoint, known=known)
            look_up_in_pieces(tower.module, lambda table: checkpoint.pieces(PREFIX + table.weight))
        load_weights(tower.module, checkpoint, known=known)
        tower.served.check_weights()
        settle_id_maps(tower.module, lambda name: checkpoint.pieces(PREFIX + name))
        return FilledModule(module=tower.module, checkpoint=checkpoint, prefix=PREFIX)

    def try_out(self, tower: Tower, inputs: dict[str, Tensor]) -> None:
        """Do nothing: Slipway's own modules accept the inputs that are planned for them."""

    def files(self, spec: ExportSpec, config_uri: str | None, places: Places) -> TowerFiles:
        """Return the files that TorchEasyRec's servers read, for the tower's view."""
        config = self.planned.config
        copies = copy_feature_files(config, assets_uri=spec.assets_uri, config_uri=config_uri, places=places)
        settings = render_model_acc(
            config, mode=spec.mode, layout=spec.layout, tables=spec.tables, max_batch_size=spec.max_batch_size
        )
        contents = {
            "pipeline.config": render_pipeline_config(config, copies.names).encode(),
            "fg.json": render_fg_json(config, copies.names).encode(),
            "model_acc.json": settings.encode(),
        }
        return TowerFiles(contents={**contents, **copies.contents}, remarks=copies.remarks())
