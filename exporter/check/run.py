"""The lab: a model's towers at many sizes, node by node and as packages, without publishing anything.

A failing case does not end it: all of them are told.
"""

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from exporter.aoti.out_of_memory import as_out_of_memory
from exporter.attempt.stage_timeout import TRACE_LOG
from exporter.check.cases import findings_of
from exporter.check.minify_failure import smallest_of, smallest_untraced
from exporter.check.report import CheckReport, Finding, Subject, TowerCheck
from exporter.check.tower import Wanted, packages_of
from exporter.construction.sources import config_source
from exporter.data.batch import contradicting_batches, verification_batches
from exporter.data.sweep import sweep
from exporter.distributed.isolation import run_isolated
from exporter.errors import (
    CompileFailed,
    DimPlanViolated,
    PromiseBroken,
    TowerDied,
    TraceFailed,
    VerificationFailed,
)
from exporter.minify.on_failure import expected_ending
from exporter.outcome import Failure
from exporter.packages.parts import PackagePlan, TracedPart, plan_packages, trace_parts
from exporter.pipeline.open_tower import OpenedTower, open_tower
from exporter.towers.plan import TowerToExport, plan_export, read_config
from exporter.trace.op_libraries import find_op_libraries
from exporter.trace.trace_log import log_nodes
from exporter.verify.cases import Cases
from exporter.verify.gate import Gate

OnFinding = Callable[[str, Finding], None]  # the tower's name and what was found, as it comes


def check(wanted: Wanted, on_finding: OnFinding) -> CheckReport:
    """Check every tower, each in a process of its own; `on_finding` is called in these.

    Raises:
        ExportError: nothing could be tried: a bad request or config.
    """
    config_text = read_config(wanted.spec)
    planned = plan_export(wanted.spec, config_text, families=wanted.families)
    if wanted.published is not None:
        wanted.published.require_made_from(config_source(wanted.spec.config_uri, config_text))
    with tempfile.TemporaryDirectory(prefix="slipway-check-") as scratch:
        towers = tuple(
            run_isolated(
                partial(_tried, each, wanted, config_text, Path(scratch), on_finding),
                on_death=partial(_died, each),
            )
            for each in planned
        )
    return CheckReport(passed=all(tower.passed for tower in towers), seed=wanted.seed, towers=towers)


def _died(planned: TowerToExport, how: str) -> TowerCheck:
    died = TowerDied(f"the process that checked the {planned.name} tower {how}")
    return TowerCheck(tower=planned.name, failure=Failure.of(died))


def _tried(
    planned: TowerToExport, wanted: Wanted, config_text: str, scratch: Path, on_finding: OnFinding
) -> TowerCheck:
    """Whatever goes wrong is what was found."""
    try:
        return _checked(planned, wanted, config_text, scratch, on_finding)
    except Exception as error:  # noqa: BLE001  as above
        return TowerCheck(tower=planned.name, failure=Failure.of(as_out_of_memory(error) or error))


def _checked(
    planned: TowerToExport, wanted: Wanted, config_text: str, scratch: Path, on_finding: OnFinding
) -> TowerCheck:
    folder = scratch / planned.name
    folder.mkdir()
    spec = wanted.spec.without_items()
    require = wanted.published.require_made_from if wanted.published else lambda source: None
    opened = open_tower(planned, spec, config_text, scratch, require_source=require)
    passes = spec.passes_of(planned.name)
    packages = plan_packages(opened.tower, spec)
    inputs, cases = packages.first_inputs(opened.inputs), _cases(opened, wanted)
    with log_nodes(folder / TRACE_LOG) as log:
        try:
            traced = trace_parts(packages.parts, inputs, opened.device, passes=passes)
        except (TraceFailed, DimPlanViolated) as error:
            smallest = smallest_untraced(error, packages, opened, cases, wanted)
            return TowerCheck(tower=planned.name, failure=Failure.of(error), smallest=smallest)
    try:
        compiled = packages_of(planned.name, traced, wanted, folder)
    except CompileFailed as error:
        smallest = smallest_of(planned.name, traced, inputs, wanted, expected=expected_ending(error))
        return TowerCheck(
            tower=planned.name, trace=log.summary(), failure=Failure.of(error), smallest=smallest
        )
    gate = Gate(
        opened.tower,
        compiled.chain,
        op_libraries=find_op_libraries(each.program for each in traced),
        scratch=folder,
        device=opened.device,
        passes=passes,
        lookup=compiled.lookup or packages.lookup,
    )
    programs = [(each.program, each.part.tower.plan) for each in traced]
    findings = []
    for finding in findings_of(gate, opened.tower.plan, programs, cases):
        findings.append(finding)
        on_finding(planned.name, finding)
    return TowerCheck(
        tower=planned.name,
        findings=tuple(findings),
        trace=log.summary(),
        smallest=_of_first_failure(traced, packages, findings, cases, wanted),
    )


def _of_first_failure(
    traced: Sequence[TracedPart],
    packages: PackagePlan,
    findings: Sequence[Finding],
    cases: Cases,
    wanted: Wanted,
) -> str:
    inputs = {batch.name: batch.inputs for batch in cases.must_agree}
    failed = next((each for each in findings if not each.passed and each.case in inputs), None)
    if failed is None:
        return ""
    error = PromiseBroken("") if failed.subject is Subject.NODES else VerificationFailed("")
    expected = replace(expected_ending(error), kinds=())  # a finding may tell of a crash as well
    entering = packages.first_inputs(inputs[failed.case])
    return smallest_of(traced[0].part.tower.name, traced, entering, wanted, expected=expected)


def _cases(opened: OpenedTower, wanted: Wanted) -> Cases:
    rows, plan = opened.rows, opened.tower.plan
    drawn = sweep(rows, plan, seed=wanted.seed, count=wanted.sizes)
    return Cases(
        must_agree=[*verification_batches(rows, plan), *drawn],
        must_be_refused=list(contradicting_batches(rows, plan)),
    )
