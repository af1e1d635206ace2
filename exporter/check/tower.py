"""A tower of the model to check, built, filled and with rows; and the packages to check it by."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from exporter.aoti.architecture import require_target
from exporter.aoti.code_cache import CodeCache, open_code_cache
from exporter.aoti.fingerprint import graph_fingerprint
from exporter.aoti.shape_rules import infer_shape_rules
from exporter.check.artifact import Published
from exporter.data.batch import Rows, trace_inputs
from exporter.parts import CodedPart, TracedPart, assemble_parts, compile_part, weights_of
from exporter.pipeline import blueprint_of
from exporter.planning import TowerToExport
from exporter.sources import fetch_checkpoint_once, open_rows
from exporter.spec import ExportSpec, Target, TowerName
from exporter.towers.tower import Tower
from exporter.verify.reload import Link


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """What to check, and how thoroughly."""

    spec: ExportSpec
    published: Published | None = None  # check its packages; else they are compiled
    families: Collection[str] = ()
    sizes: int = 16  # to draw
    seed: int = 20
    code_cache: str | None = None
    shrink_into: Path | None = None  # where to keep the smallest graph that fails


@dataclass(frozen=True, kw_only=True, eq=False)
class Opened:
    """A tower with its weights, and rows to try it on."""

    tower: Tower
    rows: Rows
    inputs: dict[str, Tensor]  # to trace it on
    device: torch.device


def open_tower(planned: TowerToExport, wanted: Wanted, config_text: str, scratch: Path) -> Opened:
    spec = wanted.spec
    device = require_target(spec.targets[0])
    blueprint = blueprint_of(planned, spec, config_text)
    tower = blueprint.build()
    averaged = tower.config.pipeline.averaged_weights
    checkpoint, source = fetch_checkpoint_once(spec, scratch, averaged=averaged)
    if wanted.published is not None:
        wanted.published.require_made_from(source)
    blueprint.fill(tower, checkpoint)
    tower.module.to(device)
    rows, _ = open_rows(blueprint.planned, spec)
    inputs = {name: each.to(device) for name, each in trace_inputs(rows, tower.plan).items()}
    blueprint.try_out(tower, inputs)
    infer_shape_rules(tower, rows, device, allowed=spec.allow_inferred_ops)
    return Opened(tower=tower, rows=rows, inputs=inputs, device=device)


def packages_of(
    tower: TowerName, traced: Sequence[TracedPart], wanted: Wanted, folder: Path
) -> tuple[Link, ...]:
    """The packages: those of the artifact, or ones that are compiled now."""
    if wanted.published is not None:
        return wanted.published.chain(tower, folder / "artifact")
    cache = open_code_cache(wanted.code_cache) if wanted.code_cache else None
    coded = [_coded(each, cache, wanted.spec.targets[0]) for each in traced]
    return tuple(part.link for part in assemble_parts(coded, folder))


def _coded(traced: TracedPart, cache: CodeCache | None, target: Target) -> CodedPart:
    fingerprint = graph_fingerprint(traced.program, require_target(target), target)
    known, weights = cache.of_graph(fingerprint) if cache else None, weights_of(traced)
    if known is None or known.misfit(weights):
        return compile_part(traced, fingerprint, target=target)
    return CodedPart(part=traced.part, known=known, weights=weights, passes=traced.passes)
