"""Minify a failure: search for the smallest graph that fails the same way, and save it beside the failure."""

import json
import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import torch
from torch import Tensor
from torch.export import ExportedProgram

from exporter.aoti.compile import versions
from exporter.errors import (
    CompileFailed,
    DimPlanViolated,
    ExportError,
    PackageCrashed,
    PromiseBroken,
    TraceFailed,
    VerificationFailed,
)
from exporter.minify.memory_budget import MemoryBudgetExceeded
from exporter.minify.op_recorder import record_operators
from exporter.minify.repro_script import Step
from exporter.minify.script_runner import ExpectedEnding
from exporter.minify.search import (
    SCRIPT_NAME,
    SmallestCase,
    find_smallest_failing,
    find_smallest_untraceable,
    reproduce_node,
)
from exporter.towers.tower import Tower
from exporter.verify.nodes import check_nodes

CANDIDATES_FOLDER = "tried"  # holds the scripts of the search, beside the folder of the result
BUDGET_S = 180.0
_OUT_OF_TIME = "The time limit was reached before a smaller case was found."
_SUMMARY = "smallest.json"
_ANY_ENDING = ExpectedEnding()

log = logging.getLogger(__name__)

Inputs = Mapping[str, Tensor]


@contextmanager
def minify_on_failure(
    programs: Sequence[ExportedProgram],
    inputs_of: Callable[[str], Inputs],
    folder: Path,
    *,
    libraries: Sequence[str],
) -> Iterator[None]:
    """If compiling or verifying in this context fails, search for the smallest failing graph and report it.

    The result is put in front of the error's report. `inputs_of` returns the inputs of a verification case
    by its name, and the inputs of the trace for "".
    """
    try:
        yield
    except (CompileFailed, VerificationFailed) as error:
        case = error.where if isinstance(error, VerificationFailed) else ""
        inputs = partial(inputs_of, error.case if isinstance(error, PromiseBroken) else case)
        _prepend_to_report(
            error,
            lambda failure: minify_programs(
                programs, inputs(), folder, libraries=libraries, expected=expected_ending(failure)
            ),
        )
        raise


@contextmanager
def minify_on_trace_failure(
    towers: Sequence[Tower],
    inputs: Inputs,
    others: Callable[[], Inputs],
    folder: Path,
    *,
    libraries: Sequence[str],
) -> Iterator[None]:
    """If tracing in this context fails, search for the fewest operators that cannot be traced; report them.

    Each tower takes the outputs of the tower before it. Without a traced program, the operators that the
    towers call are recorded instead: on `inputs`, and on `others`, inputs of other sizes, to see which sizes
    vary.
    """
    try:
        yield
    except (TraceFailed, DimPlanViolated) as error:
        _prepend_to_report(
            error,
            lambda failure: minify_trace_failure(
                failure, towers, inputs, others(), folder, libraries=libraries
            ),
        )
        raise


def minify_trace_failure(
    error: ExportError,
    towers: Sequence[Tower],
    inputs: Inputs,
    others: Inputs,
    folder: Path,
    *,
    libraries: Sequence[str],
) -> str:
    """Search as `minify_towers` does for the cause of `error`, if torch raised it; return what was found."""
    cause = error.__cause__
    if isinstance(cause, ExportError):
        return (
            "No smaller case was searched for: torch traced the model, but the sizes of the program differ "
            "from the dim plan, and no single operator fails that way."
        )
    expected = ExpectedEnding(kinds=(f"error {type(cause).__name__}",) if cause else ())
    return minify_towers(towers, inputs, others, folder, libraries=libraries, expected=expected)


def expected_ending(error: ExportError) -> ExpectedEnding:
    """Return how a script must end to count as the same failure as `error`."""
    if isinstance(error, CompileFailed):
        return ExpectedEnding(steps=(Step.COMPILE,), kinds=("error",))
    if isinstance(error, PackageCrashed):
        # torch raises AcceleratorError for an error on a GPU; the process of the package does not survive it.
        return ExpectedEnding(steps=(Step.RUN,), kinds=("signal", "hang", "error AcceleratorError"))
    if isinstance(error, PromiseBroken):
        return ExpectedEnding(steps=(Step.PROMISE, Step.RUN, Step.COMPARE), kinds=("error", "signal"))
    return ExpectedEnding(steps=(Step.RUN, Step.COMPARE), kinds=("error",))


def _prepend_to_report(error: ExportError, search: Callable[[ExportError], str]) -> None:
    try:
        found = search(error)
    except Exception:  # the original failure must be reported all the same
        log.exception("minify_failed")
    else:
        error.report = "\n\n".join(filter(None, [found, error.report]))


def minify_programs(
    programs: Sequence[ExportedProgram],
    inputs: Inputs,
    folder: Path,
    *,
    libraries: Sequence[str],
    expected: ExpectedEnding = _ANY_ENDING,
    budget_s: float = BUDGET_S,
) -> str:
    """Write the smallest case of the first program that by itself fails as `expected`; return a summary.

    Each program takes the outputs of the program before it. If a broken promise is expected (a node whose
    result differs from what tracing promised), the programs are run in this process, and the node that breaks
    the promise is the case.
    """
    tensors, candidates = dict(inputs), folder.with_name(CANDIDATES_FOLDER)
    promise_broken, until = expected.steps[0] is Step.PROMISE, time.monotonic() + budget_s
    for program in programs:
        names = list(program.call_spec.in_spec.child(0).child(0).context)
        program_inputs = {name: tensors[name] for name in names}
        found = None
        try:
            if promise_broken and (node := check_nodes(program, program_inputs)):
                found = reproduce_node(
                    program, program_inputs, node.node, libraries=libraries, folder=candidates
                )
            found = found or find_smallest_failing(
                program,
                program_inputs,
                libraries=libraries,
                folder=candidates,
                budget_s=until - time.monotonic(),
                expected=expected,
                on_found=partial(_write_smallest, folder=folder),
            )
        except MemoryBudgetExceeded as error:
            return str(error)
        if found is not None:
            return _write_smallest(found, folder)
        with torch.no_grad():
            tensors = program.module(check_guards=False)(program_inputs)
    if time.monotonic() > until:
        return _OUT_OF_TIME
    return (
        "Traced and compiled again by itself, the program does not fail this way: no smaller case was found."
    )


def minify_towers(
    towers: Sequence[Tower],
    inputs: Inputs,
    others: Inputs,
    folder: Path,
    *,
    libraries: Sequence[str],
    expected: ExpectedEnding = _ANY_ENDING,
    budget_s: float = BUDGET_S,
) -> str:
    """Write the fewest operators of the first tower that cannot be traced; return a summary.

    Operators that fail in another way than `expected` do not count.
    """
    until = time.monotonic() + budget_s
    for tower in towers:
        names = [tensor.name for tensor in tower.plan.inputs]
        inputs, others = ({name: each[name] for name in names} for each in (inputs, others))
        try:
            found = find_smallest_untraceable(
                record_operators(tower.module, inputs, others),
                libraries=libraries,
                folder=folder.with_name(CANDIDATES_FOLDER),
                budget_s=until - time.monotonic(),
                expected=expected,
                on_found=partial(_write_smallest, folder=folder),
            )
        except MemoryBudgetExceeded as error:
            return str(error)
        if found is not None:
            return _write_smallest(found, folder)
        with torch.no_grad():
            inputs, others = tower.module(inputs), tower.module(others)
    if time.monotonic() > until:
        return _OUT_OF_TIME
    return (
        "The operators that the model calls do not fail this way by themselves: the model's own Python code "
        "between them cannot be traced."
    )


def describe_interrupted_search(folder: Path) -> str:
    """Describe the case that an interrupted search had written so far; return "" if it had written none."""
    try:
        summary = json.loads((folder / _SUMMARY).read_text())
    except (OSError, ValueError):
        return ""
    return (
        f"Until then it had reduced {summary['of_nodes']} nodes to {summary['nodes']} ({summary['fails']}): "
        f"{SCRIPT_NAME}."
    )


def _write_smallest(found: SmallestCase, folder: Path) -> str:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / SCRIPT_NAME).write_text(found.script)
    (folder / "smallest.log").write_text(found.log)
    summary = {
        "fails": str(found.ending),
        "operators": found.nodes,
        "nodes": len(found.nodes),
        "of_nodes": found.of_nodes,
        "scripts_tried": found.scripts_run,
        "drawn_inputs": found.random_inputs,
        "versions": versions().model_dump(),
    }
    (folder / _SUMMARY).write_text(json.dumps(summary, indent=2))
    return (
        f"The smallest graph that fails this way ({found.ending}) has {len(found.nodes)} of "
        f"{found.of_nodes} nodes: {', '.join(found.nodes[:8])}. {SCRIPT_NAME} runs it with torch alone."
    )
