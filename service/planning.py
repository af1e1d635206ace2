"""Planning at submit: read the pipeline config, and find its mistakes before anything runs."""

from collections.abc import Collection, Sequence
from functools import partial

from exporter.spec import ExportSpec
from exporter.towers.pinning import pin_spec
from exporter.towers.plan import (
    LONGEST_KEPT,
    PlannedTower,
    PlanRequest,
    is_plan_kept,
    plan_export,
    plan_towers,
    read_config,
)
from jobs.control.control import Plan, Planner
from jobs.short_memory import NotAtHand
from service.schemas import PlanView, TowerPlan


def plan(spec: ExportSpec, *, families: Collection[str] = ()) -> Plan:
    """Return the pinned spec and its towers; raise an ExportError if the spec cannot be exported.

    `families` are the names of the listed custom families; their packages are not loaded.
    """
    text = read_config(spec)
    planned = plan_export(spec, text, families=families)
    towers = tuple(tower.name for tower in planned)
    return Plan(spec=pin_spec(spec, text, planned), towers=towers, family=planned[0].family)


def find_plan(spec: ExportSpec, *, families: Collection[str] = ()) -> Plan:
    """Do as `plan` if that reads and parses nothing; else raise NotAtHand."""
    text = spec.config
    if text is None or len(text) > LONGEST_KEPT or not (spec.family or is_plan_kept(spec, text)):
        raise NotAtHand
    return plan(spec, families=families)


def planner(families: Collection[str]) -> Planner:
    """Return `plan` with these custom families listed."""
    return partial(plan, families=families)


def view_plan(request: PlanRequest) -> PlanView:
    """Plan an export for the caller to see; raise an ExportError if it cannot be exported."""
    return view_of(plan_towers(request, read_config(request)), request)


def view_of(planned: Sequence[PlannedTower], request: PlanRequest) -> PlanView:
    """Return planned towers as callers see them."""
    return PlanView(
        family=planned[0].family,
        mode=request.mode,
        precision=planned[0].config.options.precision,
        max_batch_size=request.max_batch_size,
        strict_bounds=request.strict_bounds,
        towers=tuple(TowerPlan.of(tower, request) for tower in planned),
    )
