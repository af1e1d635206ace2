"""Models that programs are compared on: HSTU models of several widths, as a trainer leaves them.

A model is a pipeline config and a distributed checkpoint with random weights; its batches are real rows.
"""

import shutil
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.distributed.checkpoint as dcp
from safetensors.torch import save_file

from benchmarks.contest.contract import ExportOrder
from benchmarks.measure.models import Model, ranking_model, retrieval_model, widen
from exporter.checkpoint.keymap import PREFIX
from exporter.config.parse import parse_pipeline_config
from exporter.construction.sources import open_rows
from exporter.data.rows import named_batch
from exporter.models.registry import build_model
from exporter.spec import ExportSpec
from exporter.towers.plan import PlannedTower, plan_towers

FAMILIES = {"dlrm_hstu": ranking_model, "hstu_match": retrieval_model}
_WIDTHS = (64, 512)
WIDE = tuple(f"{family}-{width}" for family in FAMILIES for width in _WIDTHS)
NAMES = (*WIDE, *FAMILIES)  # a family alone: the recorded model, which is 32 wide
_BATCHES = 4  # of each size, with different rows
_SEED = 3


@dataclass(frozen=True)
class ContestModel:
    """A model below a folder, where its files are written as they are asked for."""

    model: Model
    folder: Path

    @classmethod
    def of(cls, name: str, folder: Path) -> "ContestModel":
        """Return one of NAMES."""
        family, _, width = name.partition("-")
        recorded = FAMILIES[family]()
        model = widen(recorded, int(width)) if width else recorded
        return cls(model, folder / model.name)

    @property
    def name(self) -> str:
        return self.model.name

    def order(self, *, seed: int, output: Path, caches: Path) -> ExportOrder:
        """Return an order for an export of new weights, which are written."""
        self.folder.mkdir(parents=True, exist_ok=True)
        config = self.folder / "pipeline.config"
        config.write_text(self.model.config)
        shutil.rmtree(output, ignore_errors=True)
        caches.mkdir(parents=True, exist_ok=True)
        return ExportOrder(
            config=config,
            checkpoint=self._write_checkpoint(seed),
            rows=self.model.rows,
            items=self.model.items,
            output=output,
            caches=caches,
        )

    def write_batches(self, sizes: Sequence[int]) -> Mapping[str, Path]:
        """Write batches of random rows, the same in every run; return the folder of each tower's."""
        spec = ExportSpec(
            config=self.model.config,
            checkpoint_uri=str(self.folder),
            sample_input_uri=str(self.model.rows),
            item_input_uri=str(self.model.items) if self.model.items else None,
            output_uri=str(self.folder),
        )
        folders = {}
        for planned in plan_towers(spec, self.model.config):
            assert isinstance(planned, PlannedTower)
            folder = folders[planned.name.value] = self.folder / "batches" / planned.name
            folder.mkdir(parents=True, exist_ok=True)
            rows, _ = open_rows(planned, spec)
            random = np.random.default_rng(_SEED)
            for size in sizes:
                for number in range(_BATCHES):
                    chosen = rows.select(random.integers(len(rows), size=size))
                    inputs = named_batch("drawn", chosen, planned.plan).inputs
                    tensors = {name: tensor.contiguous() for name, tensor in inputs.items()}
                    save_file(tensors, folder / f"{size}-{number}.safetensors")
        return folders

    def _write_checkpoint(self, seed: int) -> Path:
        """Write the weights of a newly initialised model in place of the last ones."""
        checkpoint = self.folder / "model.ckpt-1"
        shutil.rmtree(checkpoint, ignore_errors=True)
        torch.manual_seed(seed)
        weights = build_model(parse_pipeline_config(self.model.config)).state_dict()
        tensors = {PREFIX + name: tensor.contiguous() for name, tensor in weights.items()}
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*torch.distributed is disabled")
            dcp.save(tensors, checkpoint_id=checkpoint / "model", no_dist=True)
        return checkpoint


def name_others(name: str) -> tuple[str, ...]:
    """Return models that a machine may have exported before this one: both families in another width."""
    is_wide = name in WIDE
    return tuple(FAMILIES) if is_wide else tuple(f"{family}-{_WIDTHS[0]}" for family in FAMILIES)
