"""One export for sm_90 where there is no GPU, in a process that pretends one.

`python -m tests.gpu_build.building spec.json folder` traces each tower of the spec on tensors without values,
compiles it, and puts its packages together with the weights of the checkpoint, below the folder. Left out is
what runs a package: the gate, and with it publishing.
"""

import copy
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import torch
from torch._subclasses import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from exporter.aoti.architecture import architecture, require_target
from exporter.construction.open_blueprint import open_blueprint
from exporter.construction.sources import fetch_checkpoint_once, open_rows
from exporter.data.batch import trace_inputs
from exporter.lowering.kernels import with_kernels
from exporter.lowering.lower_tower import lower_tower
from exporter.lowering.tables import table_modules
from exporter.models.hstu.attention import AllHeads, HeadByHead, TritonAttention
from exporter.packages.parts import SPARSE_PATH, Part, TracedPart, assemble_parts, compile_part, plan_parts
from exporter.spec import Device, ExportSpec, Mode
from exporter.towers.plan import TowerToExport, plan_export, read_config
from exporter.towers.tower import Tower
from exporter.trace.trace_tower import trace_tower
from tests.gpu_build.package import Built
from tests.gpu_build.pretended import on_device, pretend


def main() -> None:
    """Build all packages; what is to be known of each is a line of `built.jsonl`."""
    spec, folder = ExportSpec.model_validate_json(Path(sys.argv[1]).read_text()), Path(sys.argv[2])
    tuned, text = pretend(), read_config(spec)
    with (folder / "built.jsonl").open("w") as lines:
        for planned in plan_export(spec, text):
            for built in packages_of(planned, spec, text, folder, tuned):
                lines.write(built.to_line() + "\n")


def packages_of(
    planned: TowerToExport, spec: ExportSpec, text: str, folder: Path, tuned: list[str]
) -> Iterator[Built]:
    """The packages of a tower, by the steps of an export."""
    target, device = spec.targets[0], require_target(spec.targets[0])
    blueprint = open_blueprint(planned, spec, text)
    tower = blueprint.build()
    blueprint.fill(tower, fetch_checkpoint_once(spec, folder, tower.config.pipeline)[0])
    tower = lower_tower(tower, torch.device("cpu")).tower  # where its weights stay: the GPU's have no values
    rows, _ = open_rows(blueprint.planned, spec)
    mode = FakeTensorMode(shape_env=ShapeEnv(tracked_fakes=[]), allow_non_fake_inputs=True, export=True)
    tensors = trace_inputs(rows, tower.plan)
    for part, real in zip(_parts(_without_values(tower, mode), spec), _parts(tower, spec), strict=True):
        given = {name: on_device(each, mode) for name, each in tensors.items()}
        traced = TracedPart(part=part, program=trace_tower(with_kernels(part.tower, device), given, device))
        with torch.no_grad():
            tensors = real.tower.module(tensors)  # for the next part
        tuned.clear()
        weights = real.tower.module.state_dict()
        coded = replace(compile_part(traced, "unused", target=target), weights=weights)
        [made] = assemble_parts([coded], folder / planned.name)
        yield Built(
            tower=planned.name,
            package=str(made.package.path),
            architecture=architecture(Device.CUDA),
            op_libraries=coded.code.op_libraries,
            tables={name: tuple(weights[name].shape) for name in _tables(real)},
            looks_up=real.path == SPARSE_PATH or spec.mode is Mode.UNIFIED,
            attention=_attention(real, device),
            tuning="\n".join(tuned),
        )


def _parts(tower: Tower, spec: ExportSpec) -> tuple[Part, ...]:
    return plan_parts(tower, spec.mode, max_batch_size=spec.max_batch_size)


def _without_values(tower: Tower, mode: FakeTensorMode) -> Tower:
    """The tower on the GPU, its weights of their sizes and of no values."""
    weights = [*tower.module.parameters(), *tower.module.buffers()]
    fake: dict[int, object] = {id(each): on_device(each, mode) for each in weights}
    return replace(tower, module=copy.deepcopy(tower.module, fake))


def _tables(part: Part) -> Iterator[str]:
    """Yield the names of table tensors in the part's module."""
    for path, table in table_modules(part.tower.module).items():
        yield from (f"{path}.{name}" for name in table.state_dict())


def _attention(part: Part, device: torch.device) -> dict[str, int]:
    """Count the layers of attention in a part by the implementation that computes them."""
    if part.path == SPARSE_PATH:
        return {}
    modules = [type(each) for each in with_kernels(part.tower, device).module.modules()]
    torchs = sum(each in (AllHeads, HeadByHead) for each in modules)
    return {"pytorch": torchs, "triton": modules.count(TritonAttention)}


if __name__ == "__main__":
    main()
