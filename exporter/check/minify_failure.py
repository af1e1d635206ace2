"""What failed in the lab made small, if that was asked for."""

import shutil
from collections.abc import Sequence
from pathlib import Path

from torch import Tensor

from exporter.check.tower import Wanted
from exporter.errors import ExportError
from exporter.minify.on_failure import CANDIDATES_FOLDER, minify_programs, minify_trace_failure
from exporter.minify.script_runner import ExpectedEnding
from exporter.minify.search import SCRIPT_NAME
from exporter.packages.parts import PackagePlan, TracedPart
from exporter.packages.request import untraced_libraries
from exporter.pipeline.open_tower import OpenedTower
from exporter.spec import TowerName
from exporter.trace.op_libraries import all_graphs, find_known_libraries
from exporter.verify.cases import Cases


def smallest_of(
    tower: TowerName,
    traced: Sequence[TracedPart],
    inputs: dict[str, Tensor],
    wanted: Wanted,
    *,
    expected: ExpectedEnding,
) -> str:
    """Search for the smallest graph that fails as `expected`, if asked for; says what and where it is."""
    if wanted.shrink_into is None:
        return ""
    programs = [each.program for each in traced]
    folder = wanted.shrink_into / tower
    libraries = find_known_libraries(all_graphs(programs))
    told = minify_programs(programs, inputs, folder, libraries=libraries, expected=expected)
    return _kept(told, folder)


def smallest_untraced(
    error: ExportError, packages: PackagePlan, opened: OpenedTower, cases: Cases, wanted: Wanted
) -> str:
    """The same for a tower that could not be traced, as `error` says."""
    if wanted.shrink_into is None:
        return ""
    towers = [part.tower for part in packages.parts]
    inputs, others = packages.first_inputs(opened.inputs), packages.first_inputs(cases.must_agree[-1].inputs)
    folder, libraries = wanted.shrink_into / opened.tower.name, untraced_libraries(opened.tower)
    return _kept(minify_trace_failure(error, towers, inputs, others, folder, libraries=libraries), folder)


def _kept(told: str, folder: Path) -> str:
    shutil.rmtree(folder.with_name(CANDIDATES_FOLDER), ignore_errors=True)
    return f"{told} It is {folder / SCRIPT_NAME}." if (folder / SCRIPT_NAME).exists() else told
