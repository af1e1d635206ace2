"""The sparse half of a tower in TorchEasyRec's folder: the part of a tower that TorchScript compiles."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from torch import Tensor

from exporter.aoti.assemble import WrittenFile
from exporter.dims.halves import plan_halves
from exporter.dims.package_interface import bound_between
from exporter.manifest import ReadBack
from exporter.options.layout import PackageKind
from exporter.readback.scripted import read_back_scripted
from exporter.readback.tower_weights import TowerWeights
from exporter.torcheasyrec.dense_half import DenseHalf
from exporter.torcheasyrec.scripted_file import SCRIPTED_PATH, write_scripted
from exporter.torcheasyrec.sparse_half import SparseHalf, build_sparse_half
from exporter.towers.tower import Tower
from exporter.verify.reload import Link


@dataclass(frozen=True, kw_only=True, eq=False)
class ScriptedPart:
    """The first step of a tower: its lookups, which no program is traced for."""

    tower: Tower  # its module is eager
    half: SparseHalf
    path: str = SCRIPTED_PATH  # below the tower's folder

    def look_up(self, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return what the part does; raises RuntimeError for inputs that it refuses."""
        return self.half.look_up(inputs)

    def write(self, folder: Path) -> "WrittenPart":
        """Write the part below a tower's folder."""
        return WrittenPart(part=self, package=write_scripted(self.half.graph, folder / self.path))


@dataclass(frozen=True, kw_only=True, eq=False)
class WrittenPart:
    """The part's file on disk."""

    part: ScriptedPart
    package: WrittenFile

    @property
    def link(self) -> Link:
        order = tuple(tensor.name for tensor in self.part.tower.plan.inputs)
        return Link(package=self.package.path, order=order, kind=PackageKind.TORCHSCRIPT)

    def read_back(self, origin: TowerWeights | None, before: ReadBack) -> ReadBack:
        """Compare every byte of the file's tensors, and add them to what was compared before."""
        return read_back_scripted(self.part.tower.title, self.package, self.part.half.graph, origin, before)


def plan_torcheasyrec_halves(tower: Tower, *, max_batch_size: int) -> tuple[ScriptedPart, Tower]:
    """Return the lookups of a tower, and the dense half behind them as a tower to compile."""
    halves = plan_halves(tower.config, max_batch_size=max_batch_size)
    halves = replace(halves, plan=bound_between(halves.plan, tower.plan))
    half = SparseHalf(build_sparse_half(tower, halves)).eval()
    dense = DenseHalf(tower.served, tower.config.pipeline, halves).eval()
    return (
        ScriptedPart(tower=replace(tower, module=half), half=half),
        replace(tower, module=dense, plan=halves.plan),
    )
