"""Planning at submit: read the pipeline config, and find what is wrong with it before anything runs."""

from exporter.planning import pin, plan_export, read_config
from exporter.spec import ExportSpec
from jobs.control import Plan


def plan(spec: ExportSpec) -> Plan:
    """The pinned spec and the towers it comes to; raises what makes the spec impossible."""
    text = read_config(spec)
    planned = plan_export(spec, text)
    return Plan(spec=pin(spec, text, planned), towers=tuple(tower.config.name for tower in planned))
