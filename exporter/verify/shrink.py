"""What failed, made small: the smallest failing graph is searched for and kept beside the failure."""

import json
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import Tensor
from torch.export import ExportedProgram

from exporter.aoti.compile import versions
from exporter.errors import CompileFailed, VerificationFailed
from exporter.verify.minify import SCRIPT, Smallest, smallest_failing

_BUDGET_S = 180.0

log = logging.getLogger(__name__)

Inputs = Mapping[str, Tensor]


@contextmanager
def shrunk(
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
        try:
            case = error.where if isinstance(error, VerificationFailed) else ""
            told = keep_smallest(programs, inputs_of(case), folder, libraries=libraries)
        except Exception:  # the failure itself must be told all the same
            log.exception("shrinking_failed")
        else:
            error.report = "\n\n".join(filter(None, [told, error.report]))
        raise


def keep_smallest(
    programs: Sequence[ExportedProgram],
    inputs: Inputs,
    folder: Path,
    *,
    libraries: Sequence[str],
    budget_s: float = _BUDGET_S,
) -> str:
    """Write the smallest failing case of the first program that fails alone; says what was found.

    Of several programs, each takes what the one before it returns.
    """
    tensors = dict(inputs)
    for program in programs:
        names = list(program.call_spec.in_spec.child(0).child(0).context)
        taken = {name: tensors[name] for name in names}
        found = smallest_failing(
            program, taken, libraries=libraries, folder=folder.with_name("tried"), budget_s=budget_s
        )
        if found is not None:
            return _written(found, folder)
        with torch.no_grad():
            tensors = program.module(check_guards=False)(taken)
    return "The program alone, traced and compiled anew, does not fail: no smaller case was found."


def _written(found: Smallest, folder: Path) -> str:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / SCRIPT).write_text(found.script)
    (folder / "smallest.log").write_text(found.log)
    about = {
        "fails": str(found.ending),
        "operators": found.nodes,
        "nodes": len(found.nodes),
        "of_nodes": found.of,
        "scripts_tried": found.tried,
        "versions": versions().model_dump(),
    }
    (folder / "smallest.json").write_text(json.dumps(about, indent=2))
    return (
        f"The smallest graph that fails so ({found.ending}) has {len(found.nodes)} of {found.of} nodes: "
        f"{', '.join(found.nodes[:8])}. {SCRIPT} in the failure's bundle runs it with torch alone."
    )
