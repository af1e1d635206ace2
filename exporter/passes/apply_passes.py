"""Apply the passes of a request to a tower's traced programs."""

from collections.abc import Sequence
from dataclasses import replace
from typing import assert_never

import torch
from torch import Tensor, nn
from torch.export import ExportedProgram

from exporter.errors import PassRefused
from exporter.manifest import AppliedPass
from exporter.models.hstu.attention import ATTENTION, Attention
from exporter.passes.editable import EditableProgram, similar_names
from exporter.passes.precision import set_precision
from exporter.passes.swap import swap_module
from exporter.passes.variants import called_modules
from exporter.spec import LowPrecision, Pass, SetPrecision, SwapAttention
from exporter.towers.tower import Tower
from exporter.trace.trace_tower import trace_tower

_DTYPES = {LowPrecision.BF16: torch.bfloat16, LowPrecision.FP16: torch.float16}
_PART = "served."  # prefix of submodules in one of a tower's two packages, which wraps the tower's module


def preserved_calls(tower: Tower, passes: Sequence[Pass]) -> tuple[str, ...]:
    """Return the submodules whose call signatures tracing must preserve for these passes."""
    return tuple(
        dict.fromkeys(
            name
            for each in passes
            if isinstance(each, SwapAttention)
            for name in _attention_below(tower.module, each.submodule)
        )
    )


def apply_passes(
    tower: Tower, program: ExportedProgram, passes: Sequence[Pass], inputs: dict[str, Tensor]
) -> tuple[ExportedProgram, tuple[AppliedPass, ...]]:
    """Apply all passes whose submodules the program calls; return the retraced program and the changes.

    Raises:
        PassRefused: a pass does not fit the program.
        TraceFailed: the edited program cannot be traced.
    """
    if not passes:
        return program, ()
    editable = EditableProgram(program)
    applied = tuple(
        AppliedPass(asked=each, calls=tuple(call.removeprefix(_PART) for call in calls))
        for each in passes
        if (calls := _apply(tower, editable, each))
    )
    if not applied:
        return program, ()
    device = next(iter(inputs.values())).device
    return trace_tower(replace(tower, module=editable), inputs, device), applied


def require_applied(
    passes: Sequence[Pass], applied: Sequence[AppliedPass], programs: Sequence[ExportedProgram]
) -> None:
    """Require that every pass changed something in some package of the tower.

    Raises:
        PassRefused: a pass changed nothing, because its submodule is not called; names it.
    """
    done = [each.asked for each in applied]
    for each in passes:
        if each not in done:
            known = [
                name.removeprefix(_PART)
                for program in programs
                for name in called_modules(EditableProgram(program))
            ]
            raise PassRefused(
                f"the {each.tower} tower calls no {each.submodule} that the {each.kind} pass could change",
                hint=f"it calls {similar_names(each.submodule, known)}",
                where=f"passes: {each.submodule}",
            )


def _apply(tower: Tower, editable: EditableProgram, asked: Pass) -> tuple[str, ...]:
    """Apply one pass; return the names of the changed calls, none if its submodule is not called."""
    match asked:
        case SetPrecision():
            called = set(called_modules(editable))
            names = [name for name in (asked.submodule, _PART + asked.submodule) if name in called]
            return tuple(
                call for name in names for call in set_precision(editable, name, _DTYPES[asked.precision])
            )
        case SwapAttention():
            return tuple(
                call
                for name, old in _attention_below(tower.module, asked.submodule).items()
                if name in called_modules(editable)
                for call in swap_module(editable, name, ATTENTION[asked.attention](old.heads, old.visibility))
            )
    assert_never(asked)


def _attention_below(module: nn.Module, submodule: str) -> dict[str, Attention]:
    below = tuple(f"{prefix}{submodule}." for prefix in ("", _PART))
    return {
        name: child
        for name, child in module.named_modules()
        if isinstance(child, Attention) and f"{name}.".startswith(below)
    }
