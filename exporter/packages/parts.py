"""The parts of a tower, each a package: all of it, or lookups and dense part; traced and compiled in turn."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor
from torch.export import ExportedProgram

from exporter.aoti.assemble import WrittenFile
from exporter.aoti.code import ProgramCode, describe_layouts
from exporter.aoti.compile import compile_code
from exporter.lowering.kernels import with_kernels
from exporter.manifest import AppliedPass
from exporter.options.layout import Layout
from exporter.packages.scripted_part import ScriptedPart, plan_torcheasyrec_halves
from exporter.passes.apply_passes import apply_passes, preserved_calls, require_applied
from exporter.spec import ExportSpec, Mode, Pass, Target
from exporter.stages import Progress, no_progress
from exporter.towers.lookup import LookUp, build_eager_lookup
from exporter.towers.split import split_tower
from exporter.towers.tower import Tower
from exporter.trace.op_libraries import find_op_libraries
from exporter.trace.outputs import output_entries
from exporter.trace.trace_tower import trace_tower
from exporter.triton_server.names import model_name, package_models, package_path
from exporter.verify.reload import Link

# The last package of a tower is where TorchEasyRec's servers look for one.
PACKAGE_PATH = "aoti/aoti_model.pt2"
SPARSE_PATH = "aoti/sparse_model.pt2"
_PATHS: Mapping[Mode, Sequence[str]] = {
    Mode.UNIFIED: (PACKAGE_PATH,),
    Mode.TWO_STAGE: (SPARSE_PATH, PACKAGE_PATH),
}


@dataclass(frozen=True, kw_only=True)
class Part:
    """One step of a tower, in calling order: its module and plan, and where its package goes."""

    tower: Tower
    path: str  # below the tower's folder
    name: str = "aoti_model"  # in messages, and in names of diagnostics


@dataclass(frozen=True, kw_only=True)
class TracedPart:
    """A part as torch.export captured it."""

    part: Part
    program: ExportedProgram
    passes: tuple[AppliedPass, ...] = ()

    @property
    def weights(self) -> Mapping[str, Tensor]:
        """The weights of the part's package: the module's, unless a pass gave the program others."""
        return self.program.state_dict if self.passes else self.part.tower.module.state_dict()


@dataclass(frozen=True, kw_only=True)
class CodedPart:
    """A part and its code, compiled now or at an earlier export."""

    part: Part
    code: ProgramCode
    weights: Mapping[str, Tensor]
    passes: tuple[AppliedPass, ...] = ()


@dataclass(frozen=True, kw_only=True)
class CompiledPart:
    """A part's package on disk."""

    part: Part
    code: ProgramCode
    passes: tuple[AppliedPass, ...] = ()
    package: WrittenFile

    @property
    def link(self) -> Link:
        order = tuple(tensor.name for tensor in self.part.tower.plan.inputs)
        return Link(package=self.package.path, order=order)


@dataclass(frozen=True, kw_only=True)
class PackagePlan:
    """The parts that a tower is packaged in, and the lookup in front of them where none of them looks up."""

    parts: tuple[Part, ...]
    lookup: LookUp | None = None
    scripted: ScriptedPart | None = None  # a package as well, which does what `lookup` does

    def first_inputs(self, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return the inputs of the first part for a call of the tower with `inputs`."""
        return dict(inputs) if self.lookup is None else self.lookup(inputs)


def plan_packages(tower: Tower, spec: ExportSpec) -> PackagePlan:
    """Plan the packages that the spec asks for; where tables are sharded, only the dense part is packaged."""
    if spec.mode is Mode.TWO_STAGE and spec.layout is Layout.TORCHEASYREC:
        scripted, dense = plan_torcheasyrec_halves(tower, max_batch_size=spec.max_batch_size)
        part = Part(tower=dense, path=PACKAGE_PATH)
        return PackagePlan(parts=(part,), lookup=scripted.look_up, scripted=scripted)
    parts = plan_parts(tower, spec.mode, max_batch_size=spec.max_batch_size, paths=_plan_paths(tower, spec))
    if not spec.tables.sharded:
        return PackagePlan(parts=parts)
    return PackagePlan(parts=parts[1:], lookup=build_eager_lookup(tower, max_batch_size=spec.max_batch_size))


def _plan_paths(tower: Tower, spec: ExportSpec) -> Sequence[str]:
    """Return the paths of the tower's packages in the layout that the spec asks for, in calling order."""
    if spec.layout is Layout.TRITON:
        models = package_models(model_name(tower.name, spec.triton_prefix), spec.mode)
        return [package_path(model) for model in models]
    return _PATHS[spec.mode]


def plan_parts(
    tower: Tower, mode: Mode, *, max_batch_size: int, paths: Sequence[str] = ()
) -> tuple[Part, ...]:
    """Return the parts by mode: the whole tower, or its lookups and then its dense part.

    `paths` are those of their packages, if they are not where TorchEasyRec's servers look.
    """
    paths = paths or _PATHS[mode]
    if mode is Mode.UNIFIED:
        return (Part(tower=tower, path=paths[0]),)
    sparse, dense = split_tower(tower, max_batch_size=max_batch_size)
    return (Part(tower=sparse, path=paths[0], name="sparse_model"), Part(tower=dense, path=paths[1]))


def trace_parts(
    parts: Sequence[Part],
    inputs: dict[str, Tensor],
    device: torch.device,
    progress: Progress = no_progress,
    *,
    passes: Sequence[Pass] = (),
) -> tuple[TracedPart, ...]:
    """Trace each part on the outputs of the one before it, the first on `inputs`; then apply the passes.

    The traced modules have the kernels that the config asks for; the outputs in between are eager's.

    Raises:
        PassRefused: a pass fits no part.
    """
    traced = []
    tensors = {name: tensor.to(device) for name, tensor in inputs.items()}
    for done, part in enumerate(parts):
        report = part_progress(progress, done, len(parts))
        preserved = preserved_calls(part.tower, passes)
        tower = with_kernels(part.tower, device, kept=preserved)
        program = trace_tower(tower, tensors, device, report, preserved=preserved)
        program, applied = apply_passes(part.tower, program, passes, tensors)
        traced.append(TracedPart(part=part, program=program, passes=applied))
        with torch.no_grad():
            tensors = part.tower.module(tensors)
    require_applied(passes, [each for part in traced for each in part.passes], [t.program for t in traced])
    return tuple(traced)


def compile_part(
    traced: TracedPart, fingerprint: str, progress: Progress = no_progress, *, target: Target = "cpu"
) -> CodedPart:
    """Compile a part, whose graph has this fingerprint, for `target`."""
    program, weights = traced.program, traced.weights
    code = ProgramCode(
        fingerprint=fingerprint,
        code=compile_code(program, progress, target=target),
        state=describe_layouts(weights),
        outputs=output_entries(program, traced.part.tower.plan),
        op_libraries=find_op_libraries([program]),
    )
    return CodedPart(part=traced.part, code=code, weights=weights, passes=traced.passes)


def assemble_parts(coded: Sequence[CodedPart], folder: Path) -> tuple[CompiledPart, ...]:
    """Write the package of each part, code and weights, below `folder`."""
    return tuple(
        CompiledPart(
            part=each.part,
            code=each.code,
            passes=each.passes,
            package=each.code.assemble(each.weights, folder / each.part.path),
        )
        for each in coded
    )


def part_progress(progress: Progress, done: int, parts: int) -> Progress:
    """Report progress within one part as progress of all parts; the fraction within a part is unknown."""
    fraction = done / parts if parts > 1 else None
    return lambda _, detail: progress(fraction, detail)
