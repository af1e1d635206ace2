"""Planning at submit: read the pipeline config, and find what is wrong with it before anything runs."""

from collections.abc import Collection

from exporter.planning import PlanRequest, pin, plan_export, plan_towers, read_config
from exporter.spec import ExportSpec
from jobs.control import Plan
from service.schemas import PlanView, TowerPlan


def plan(spec: ExportSpec, *, families: Collection[str] = ()) -> Plan:
    """The pinned spec and the towers it comes to; raises what makes the spec impossible.

    `families` are the listed ones of one's own; nothing of theirs is loaded.
    """
    text = read_config(spec)
    planned = plan_export(spec, text, families=families)
    return Plan(spec=pin(spec, text, planned), towers=tuple(tower.name for tower in planned))


def view_plan(request: PlanRequest) -> PlanView:
    """What an export would come to; raises what makes it impossible."""
    planned = plan_towers(request, read_config(request))
    return PlanView(
        family=planned[0].family,
        mode=request.mode,
        max_batch_size=request.max_batch_size,
        towers=tuple(TowerPlan.of(tower, request) for tower in planned),
    )
