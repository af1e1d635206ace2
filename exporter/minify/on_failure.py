"""What failed, made small: the smallest failing graph is searched for and kept beside the failure."""

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

CANDIDATES_FOLDER = "tried"  # the folder, beside the one that is kept, of the scripts on the way
BUDGET_S = 180.0
_OUT_OF_TIME = "Time was up before a smaller case was found."
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
    """Should what is done inside fail, search for the smallest graph that does so and say so in the error.

    `inputs_of` gives the inputs of a verification case by its name, and those of the trace for "".
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
    """The same for tracing: each tower takes what the one before it returns.

    There is no program to cut, so what the towers' code calls is recorded, on `inputs` and, to see which
    sizes vary, on `others`.
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
    """What `minify_towers` tells of the cause of `error`, if torch raised it."""
    cause = error.__cause__
    if isinstance(cause, ExportError):
        return (
            "No smaller case was searched for: torch traced the model, to a program whose sizes are not "
            "the plan's, and no operator by itself fails so."
        )
    expected = ExpectedEnding(kinds=(f"error {type(cause).__name__}",) if cause else ())
    return minify_towers(towers, inputs, others, folder, libraries=libraries, expected=expected)


def expected_ending(error: ExportError) -> ExpectedEnding:
    """How a script must end that fails as `error` says."""
    if isinstance(error, CompileFailed):
        return ExpectedEnding(steps=(Step.COMPILE,), kinds=("error",))
    if isinstance(error, PackageCrashed):
        # The last is what an error of a GPU is to torch; the package's process does not outlive it.
        return ExpectedEnding(steps=(Step.RUN,), kinds=("signal", "hang", "error AcceleratorError"))
    if isinstance(error, PromiseBroken):
        return ExpectedEnding(steps=(Step.PROMISE, Step.RUN, Step.COMPARE), kinds=("error", "signal"))
    return ExpectedEnding(steps=(Step.RUN, Step.COMPARE), kinds=("error",))


def _prepend_to_report(error: ExportError, search: Callable[[ExportError], str]) -> None:
    try:
        told = search(error)
    except Exception:  # the failure itself must be told all the same
        log.exception("shrinking_failed")
    else:
        error.report = "\n\n".join(filter(None, [told, error.report]))


def minify_programs(
    programs: Sequence[ExportedProgram],
    inputs: Inputs,
    folder: Path,
    *,
    libraries: Sequence[str],
    expected: ExpectedEnding = _ANY_ENDING,
    budget_s: float = BUDGET_S,
) -> str:
    """Write the smallest case of the first program that fails alone as `expected`; says what was found.

    Of several programs, each takes what the one before it returns. Where a promise is expected to be broken,
    which takes a run in this process, the node that breaks it is the case.
    """
    tensors, tried = dict(inputs), folder.with_name(CANDIDATES_FOLDER)
    broken, until = expected.steps[0] is Step.PROMISE, time.monotonic() + budget_s
    for program in programs:
        names = list(program.call_spec.in_spec.child(0).child(0).context)
        taken = {name: tensors[name] for name in names}
        found = None
        try:
            if broken and (node := check_nodes(program, taken)):
                found = reproduce_node(program, taken, node.node, libraries=libraries, folder=tried)
            found = found or find_smallest_failing(
                program,
                taken,
                libraries=libraries,
                folder=tried,
                budget_s=until - time.monotonic(),
                expected=expected,
                on_found=partial(_write_smallest, folder=folder),
            )
        except MemoryBudgetExceeded as error:
            return str(error)
        if found is not None:
            return _write_smallest(found, folder)
        with torch.no_grad():
            tensors = program.module(check_guards=False)(taken)
    if time.monotonic() > until:
        return _OUT_OF_TIME
    return "The program alone, traced and compiled anew, does not fail so: no smaller case was found."


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
    """Write the fewest operators of the first tower that cannot be traced; says what was found.

    They count only if they fail as `expected`.
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
        "The operators that the model calls do not fail so by themselves: what cannot be traced is the "
        "model's own Python between them."
    )


def describe_interrupted_search(folder: Path) -> str:
    """What a search that was ended had written by then, in words; nothing if it was nothing."""
    try:
        about = json.loads((folder / _SUMMARY).read_text())
    except (OSError, ValueError):
        return ""
    return (
        f"By then it had cut {about['of_nodes']} nodes to {about['nodes']} ({about['fails']}): {SCRIPT_NAME}."
    )


def _write_smallest(found: SmallestCase, folder: Path) -> str:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / SCRIPT_NAME).write_text(found.script)
    (folder / "smallest.log").write_text(found.log)
    about = {
        "fails": str(found.ending),
        "operators": found.nodes,
        "nodes": len(found.nodes),
        "of_nodes": found.of,
        "scripts_tried": found.tried,
        "drawn_inputs": found.drawn,
        "versions": versions().model_dump(),
    }
    (folder / _SUMMARY).write_text(json.dumps(about, indent=2))
    return (
        f"The smallest graph that fails so ({found.ending}) has {len(found.nodes)} of {found.of} nodes: "
        f"{', '.join(found.nodes[:8])}. {SCRIPT_NAME} runs it with torch alone."
    )
