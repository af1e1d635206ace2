"""Explain why torch.export refused a tower: translate its message on sizes into terms of the config."""

import logging
import re

import torch
from torch import Tensor

from exporter.aoti.torch_private import draft_guards
from exporter.dims.diagnose import SizeGuard, diagnose, parse_violations, report_guards
from exporter.dims.plan import DimPlan
from exporter.dims.sizes import common_size
from exporter.dims.torch_dims import to_torch_dims
from exporter.errors import DimPlanViolated, TraceFailed
from exporter.towers.tower import Tower
from exporter.trace.capture import capture_tower

_LONGEST_MESSAGE = 2000
_DECLARED_HINT = "write the module so that torch.export captures it; docs/families.md says what to avoid"
_SYMBOL = re.compile(r"\bs\d+\b")  # torch writes an unknown size like s27

log = logging.getLogger(__name__)


def explain_failure(
    tower: Tower, inputs: dict[str, Tensor], error: Exception
) -> TraceFailed | DimPlanViolated:
    """Return the error to raise for `error`, which tracing `tower` on `inputs` raised.

    If the model needs two sizes to be equal that differ in the inputs, the operation that combines them
    fails, and torch names neither input. The tower is therefore traced again on inputs with one element per
    row, where such sizes coincide, and torch says which of them must always be equal.
    """
    message = str(error).strip()
    alike = one_element_per_row(inputs, tower.plan)
    constraints = message
    if "Constraints violated" not in message and _SYMBOL.search(message):
        constraints = _trace_again(tower, alike)
    found = parse_violations(constraints)
    if not found:
        return TraceFailed(
            f"{tower.title}: {type(error).__name__}: {message[:_LONGEST_MESSAGE]}",
            hint=_DECLARED_HINT if tower.is_declared else "",
        )
    guards = _draft_guards(tower, alike)
    raised = diagnose(found, tower.plan, tower.config.pipeline, tower=tower.title, guards=guards)
    raised.report = "\n\n".join(
        [constraints, "draft_export:", report_guards(guards, tower.plan) or "nothing"]
    )
    return raised


def one_element_per_row(inputs: dict[str, Tensor], plan: DimPlan) -> dict[str, Tensor]:
    """Shrink the inputs to one common size for every dim: rows of one element, elements of one value."""
    size = common_size(plan)
    alike = {}
    for tensor in plan.inputs:
        value = inputs[tensor.name]
        for axis, planned in enumerate(tensor.shape):
            if isinstance(planned, str):
                indices = torch.arange(size, device=value.device) % max(value.shape[axis], 1)
                value = value.index_select(axis, indices)
        counts = tensor.filled_with.endswith(("lengths", "__sequence_length"))
        alike[tensor.name] = torch.ones_like(value) if counts else value
    return alike


def _trace_again(tower: Tower, inputs: dict[str, Tensor]) -> str:
    try:
        capture_tower(tower, inputs)
    except Exception as error:  # noqa: BLE001  torch.export raises many unrelated types
        return str(error).strip()
    return ""


def _draft_guards(tower: Tower, inputs: dict[str, Tensor]) -> tuple[SizeGuard, ...]:
    try:
        return draft_guards(tower.module, inputs, to_torch_dims(tower.plan))
    except Exception:  # the guards only add to the report
        log.exception("draft_export_failed", extra={"tower": tower.name})
        return ()
