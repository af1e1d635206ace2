"""Why torch.export refused a tower: what it says of sizes, turned into what a config can change."""

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
_OF_SIZES = re.compile(r"\bs\d+\b")  # torch writes an unknown size as s27

log = logging.getLogger(__name__)


def explain_failure(
    tower: Tower, inputs: dict[str, Tensor], error: Exception
) -> TraceFailed | DimPlanViolated:
    """The error for what tracing `tower` on `inputs` raised.

    Sizes that differ where the model needs them equal fail in the operation that joins them, and torch
    names neither input. Traced once more with one element per row in everything, such sizes
    coincide, and torch says which of them must always be equal.
    """
    message = str(error).strip()
    alike = one_element_per_row(inputs, tower.plan)
    told = message
    if "Constraints violated" not in message and _OF_SIZES.search(message):
        told = _trace_alike(tower, alike)
    found = parse_violations(told)
    if not found:
        return TraceFailed(
            f"{tower.title}: {type(error).__name__}: {message[:_LONGEST_MESSAGE]}",
            hint=_DECLARED_HINT if tower.is_declared else "",
        )
    guards = _draft_guards(tower, alike)
    raised = diagnose(found, tower.plan, tower.config.pipeline, tower=tower.title, guards=guards)
    raised.report = "\n\n".join([told, "draft_export:", report_guards(guards, tower.plan) or "nothing"])
    return raised


def one_element_per_row(inputs: dict[str, Tensor], plan: DimPlan) -> dict[str, Tensor]:
    """The inputs with one and the same size for every dim: rows of one element, elements of one value."""
    size = common_size(plan)
    alike = {}
    for tensor in plan.inputs:
        value = inputs[tensor.name]
        for axis, planned in enumerate(tensor.shape):
            if isinstance(planned, str):
                kept = torch.arange(size, device=value.device) % max(value.shape[axis], 1)
                value = value.index_select(axis, kept)
        counts = tensor.filled_with.endswith(("lengths", "__sequence_length"))
        alike[tensor.name] = torch.ones_like(value) if counts else value
    return alike


def _trace_alike(tower: Tower, inputs: dict[str, Tensor]) -> str:
    try:
        capture_tower(tower, inputs)
    except Exception as error:  # noqa: BLE001  as in trace
        return str(error).strip()
    return ""


def _draft_guards(tower: Tower, inputs: dict[str, Tensor]) -> tuple[SizeGuard, ...]:
    try:
        return draft_guards(tower.module, inputs, to_torch_dims(tower.plan))
    except Exception:  # what was found stands without it
        log.exception("draft_export_failed", extra={"tower": tower.name})
        return ()
