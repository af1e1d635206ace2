"""The search for the smallest graph that fails a check, where the task asks for it."""

import shutil
from collections.abc import Sequence
from pathlib import Path

from torch import Tensor

from exporter.check.task import CheckTask
from exporter.errors import ExportError
from exporter.minify.on_failure import CANDIDATES_FOLDER, minify_programs, minify_trace_failure
from exporter.minify.script_runner import ExpectedEnding
from exporter.minify.search import SCRIPT_NAME
from exporter.packages.parts import PackagePlan, TracedPart
from exporter.packages.request import likely_op_libraries
from exporter.pipeline.open_tower import OpenedTower
from exporter.trace.op_libraries import all_graphs, find_known_libraries
from exporter.verify.cases import Cases


def minify_traced(
    opened: OpenedTower,
    traced: Sequence[TracedPart],
    inputs: dict[str, Tensor],
    task: CheckTask,
    *,
    expected: ExpectedEnding,
) -> str:
    """Search the programs for the smallest graph that fails as `expected`; return the result in words."""
    if task.minify_into is None:
        return ""
    programs = [each.program for each in traced]
    folder = task.minify_into / opened.tower.name
    libraries = find_known_libraries(all_graphs(programs))
    result = minify_programs(programs, inputs, folder, libraries=libraries, expected=expected)
    return _name_script(result, folder)


def minify_untraced(
    error: ExportError, packages: PackagePlan, opened: OpenedTower, cases: Cases, task: CheckTask
) -> str:
    """Search for the fewest operators that cannot be traced, as `error` says; return the result in words."""
    if task.minify_into is None:
        return ""
    towers = [part.tower for part in packages.parts]
    inputs = packages.first_inputs(opened.inputs)
    others = packages.first_inputs(cases.must_agree[-1].inputs)
    folder, libraries = task.minify_into / opened.tower.name, likely_op_libraries(opened.tower)
    result = minify_trace_failure(error, towers, inputs, others, folder, libraries=libraries)
    return _name_script(result, folder)


def _name_script(result: str, folder: Path) -> str:
    shutil.rmtree(folder.with_name(CANDIDATES_FOLDER), ignore_errors=True)
    return f"{result} It is {folder / SCRIPT_NAME}." if (folder / SCRIPT_NAME).exists() else result
