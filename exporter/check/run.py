"""`slipway check`: a model's towers at many sizes, node by node and as packages; nothing is published.

A failing case does not end it: every case is reported.
"""

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from exporter.aoti.out_of_memory import as_out_of_memory
from exporter.attempt.stage_timeout import TRACE_LOG
from exporter.check.cases import SHOWN, find_everything
from exporter.check.minify_failure import minify_traced, minify_untraced
from exporter.check.packages import make_runnable
from exporter.check.report import CheckReport, Finding, TowerCheck
from exporter.check.task import CheckTask
from exporter.construction.sources import config_source
from exporter.data.batch import contradicting_batches, verification_batches
from exporter.data.sweep import sweep
from exporter.distributed.isolation import run_isolated
from exporter.errors import CompileFailed, DimPlanViolated, TowerDied, TraceFailed
from exporter.minify.on_failure import expected_ending
from exporter.outcome import Failure
from exporter.packages.parts import PackagePlan, TracedPart, plan_packages, trace_parts
from exporter.pipeline.open_tower import OpenedTower, open_tower
from exporter.stages import StageClock
from exporter.towers.plan import TowerToExport, plan_export, read_config
from exporter.trace.trace_log import log_nodes
from exporter.verify.cases import Cases

OnFinding = Callable[[str, Finding], None]  # receives the tower's name and each finding as it comes


def check(task: CheckTask, on_finding: OnFinding) -> CheckReport:
    """Check every tower, each in a process of its own; `on_finding` is called in these.

    Raises:
        ExportError: nothing could be tried: a bad request or config.
    """
    config_text = read_config(task.spec)
    planned = plan_export(task.spec, config_text, families=task.families)
    if task.published is not None:
        task.published.require_made_from(config_source(task.spec.config_uri, config_text))
    with tempfile.TemporaryDirectory(prefix="slipway-check-") as scratch:
        towers = tuple(
            run_isolated(
                partial(_try_check_tower, each, task, config_text, Path(scratch), on_finding),
                on_death=partial(_report_dead_process, each),
            )
            for each in planned
        )
    return CheckReport(passed=all(tower.passed for tower in towers), seed=task.seed, towers=towers)


def _report_dead_process(planned: TowerToExport, how: str) -> TowerCheck:
    died = TowerDied(f"the process that checked the {planned.name} tower {how}")
    return TowerCheck(tower=planned.name, failure=Failure.of(died))


def _try_check_tower(
    planned: TowerToExport, task: CheckTask, config_text: str, scratch: Path, on_finding: OnFinding
) -> TowerCheck:
    """Check one tower; any error becomes the tower's failure."""
    try:
        return _check_tower(planned, task, config_text, scratch, on_finding)
    except Exception as error:  # noqa: BLE001  as above
        return TowerCheck(tower=planned.name, failure=Failure.of(as_out_of_memory(error) or error))


def _check_tower(
    planned: TowerToExport, task: CheckTask, config_text: str, scratch: Path, on_finding: OnFinding
) -> TowerCheck:
    folder = scratch / planned.name
    folder.mkdir()
    spec = task.spec.without_items()
    clock = StageClock(planned.name, lambda event: None)  # progress is reported by finding
    require = task.published.require_made_from if task.published else lambda source: None
    opened = open_tower(planned, spec, config_text, scratch, clock, require_source=require).without_fp32()
    packages = plan_packages(opened.tower, spec)
    inputs, cases = packages.first_inputs(opened.inputs), _make_cases(opened, task)
    with log_nodes(folder / TRACE_LOG) as log:
        try:
            traced = trace_parts(packages.parts, inputs, opened.device, passes=spec.passes_of(planned.name))
        except (TraceFailed, DimPlanViolated) as error:
            smallest = minify_untraced(error, packages, opened, cases, task)
            return TowerCheck(tower=planned.name, failure=Failure.of(error), smallest=smallest)
    try:
        runnable = make_runnable(opened, packages, traced, task, folder)
    except CompileFailed as error:
        smallest = minify_traced(opened, traced, inputs, task, expected=expected_ending(error))
        return TowerCheck(
            tower=planned.name, trace=log.summary(), failure=Failure.of(error), smallest=smallest
        )
    findings = []
    for finding in find_everything(runnable, [each.part.tower.plan for each in traced], cases):
        findings.append(finding)
        on_finding(planned.name, finding)
    return TowerCheck(
        tower=planned.name,
        findings=tuple(findings),
        trace=log.summary(),
        smallest=_minify_first_failure(opened, traced, packages, findings, cases, task),
    )


def _minify_first_failure(
    opened: OpenedTower,
    traced: Sequence[TracedPart],
    packages: PackagePlan,
    findings: Sequence[Finding],
    cases: Cases,
    task: CheckTask,
) -> str:
    inputs = {batch.name: batch.inputs for batch in cases.must_agree}
    errors = {each.name: each.error for each in SHOWN}
    for finding in findings:
        if not finding.passed and finding.case in inputs and finding.subject in errors:
            ending = expected_ending(errors[finding.subject](""))
            expected = replace(ending, kinds=())  # a finding may be of a crash as well
            first_inputs = packages.first_inputs(inputs[finding.case])
            return minify_traced(opened, traced, first_inputs, task, expected=expected)
    return ""


def _make_cases(opened: OpenedTower, task: CheckTask) -> Cases:
    """Make the cases of the gate, with other drawn sizes: as many as the task says, by its seed."""
    rows, plan = opened.rows, opened.tower.plan
    drawn = sweep(rows, plan, seed=task.seed, count=task.sizes)
    return Cases(
        must_agree=[*verification_batches(rows, plan), *drawn],
        must_be_refused=list(contradicting_batches(rows, plan)),
    )
