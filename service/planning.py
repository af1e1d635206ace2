"""Planning at submit: read the pipeline config, and find what is wrong with it before anything runs."""

from collections.abc import Collection, Sequence
from functools import partial

from exporter.spec import ExportSpec
from exporter.towers.plan import PlannedTower, PlanRequest, pin, plan_export, plan_towers, read_config
from jobs.control.control import Plan, Planner
from service.schemas import PlanView, TowerPlan


def plan(spec: ExportSpec, *, families: Collection[str] = ()) -> Plan:
    """The pinned spec and the towers it comes to; raises what makes the spec impossible.

    `families` are the listed ones of one's own; nothing of theirs is loaded.
    """
    text = read_config(spec)
    planned = plan_export(spec, text, families=families)
    return Plan(spec=pin(spec, text, planned), towers=tuple(tower.name for tower in planned))


def planner(families: Collection[str]) -> Planner:
    """`plan` where these families are listed."""
    return partial(plan, families=families)


def view_plan(request: PlanRequest) -> PlanView:
    """What an export would come to; raises what makes it impossible."""
    return view_of(plan_towers(request, read_config(request)), request)


def view_of(planned: Sequence[PlannedTower], request: PlanRequest) -> PlanView:
    """Planned towers as callers see them."""
    return PlanView(
        family=planned[0].family,
        mode=request.mode,
        precision=planned[0].config.pipeline.precision,
        max_batch_size=request.max_batch_size,
        towers=tuple(TowerPlan.of(tower, request) for tower in planned),
    )
