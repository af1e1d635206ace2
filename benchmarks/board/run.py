"""Run the board: one export per case, each tower in its own process; no failure stops the others."""

import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import torch

from benchmarks.board.record import ALL, Record, Result, Row, now, row_of
from benchmarks.board.zoo import EVERYTHING, Case, Model, Wanted, Zoo, cases, require_models, spec_of
from exporter.attempt.attempt import Attempt
from exporter.config.families.registry import SUPPORTED
from exporter.distributed.ranks import Ranks
from exporter.outcome import ExportOutcome, Failure
from exporter.pipeline.export import export
from exporter.spec import ExportSpec, TowerName
from exporter.stages import StageEvent
from exporter.towers.plan import TowerToExport, plan_export, read_config

OnRow = Callable[[Row], None]

_ONE_TOWER = "the reduced board exports one tower of each model"


def run_board(zoo: Zoo, folder: Path, *, reduced: bool, wanted: Wanted = EVERYTHING, on_row: OnRow) -> Record:
    """Export every case of the zoo, whose paths are relative to `folder`; report each row to `on_row`.

    No code cache is used: every case is traced and compiled.

    Raises:
        InvalidSpec: `wanted` names a model that the zoo does not have.
    """
    require_models(zoo, wanted.models)
    models = {model.name: model for model in zoo.models}
    rows: list[Row] = []
    planned = {name: _plan_towers(model, folder) for name, model in models.items()}
    families = {name: _family_name(towers) for name, towers in planned.items()}

    def add_row(row: Row) -> None:
        rows.append(row)
        on_row(row)

    for case, reason in cases(zoo, reduced=reduced, wanted=wanted):
        model, family = models[case.model], families[case.model]
        if reason:
            add_row(_left_out_row(case, family, reason))
            continue
        first, others = planned[case.model][:1], planned[case.model][1:] if reduced else ()
        towers = [tower.name for tower in first] if reduced else []
        for row in _export_case(model, case, family, folder, tuple(towers)):
            add_row(row)
        for tower in others:
            add_row(_left_out_row(case, family, _ONE_TOWER, tower=tower.name))
    for family in sorted(set(SUPPORTED) - set(families.values())):
        given = zoo.left_out.get(family)
        result = Result.LEFT_OUT if given else Result.FAIL
        why = given or "no model of the zoo is of this family, and the zoo does not say why"
        add_row(Row(family=family, model="-", tower="-", mode="-", precision="-", result=result, why=why))
    return Record(at=now(), torch=torch.__version__, rows=tuple(rows))


def _export_case(
    model: Model, case: Case, family: str, folder: Path, towers: tuple[TowerName, ...]
) -> Iterator[Row]:
    """Export one case and yield a row per tower; without `towers`, all of the model's."""
    finished: dict[str, list[str]] = {}
    begun = time.monotonic()

    with tempfile.TemporaryDirectory(prefix="slipway-board-") as scratch:
        events = Path(scratch) / "events.jsonl"

        def report(
            event: StageEvent,
        ) -> None:  # towers run in separate processes, so events go through a file
            with events.open("a") as lines:
                lines.write(event.model_dump_json() + "\n")

        workspace = Path(scratch) / "work"
        workspace.mkdir()
        spec = spec_of(model, case, folder, Path(scratch) / "out")
        spec = spec.only(towers) if towers else spec
        outcome = _run_export(Attempt(job_id="board", spec=spec, workspace=workspace), report)
        for line in events.read_text().splitlines() if events.exists() else ():
            event = StageEvent.model_validate_json(line)
            if event.kind == "finished":
                finished.setdefault(event.tower, []).append(event.stage)
    seconds = time.monotonic() - begun
    if outcome.failure is not None:
        yield Row(
            family=family,
            model=case.model,
            tower=ALL,
            mode=case.mode,
            precision=case.precision,
            result=Result.FAIL,
            why=f"{outcome.failure.code}: {outcome.failure.message}",
        )
    for tower in outcome.towers:
        yield row_of(tower, family=family, case=case, finished=finished.get(tower.tower, []), seconds=seconds)


def _run_export(attempt: Attempt, report: Callable[[StageEvent], None]) -> ExportOutcome:
    try:
        outcome = export(attempt, Ranks(), report)
    except Exception as error:  # noqa: BLE001  any failure belongs to this row only
        return ExportOutcome(failure=Failure.of(error))
    assert outcome is not None, "a single rank is rank 0"
    return outcome


def _left_out_row(case: Case, family: str, reason: str, *, tower: str = ALL) -> Row:
    return Row(
        family=family,
        model=case.model,
        tower=tower,
        mode=case.mode,
        precision=case.precision,
        result=Result.LEFT_OUT,
        why=reason,
    )


def _plan_towers(model: Model, folder: Path) -> tuple[TowerToExport, ...]:
    spec = ExportSpec(
        config_uri=str(folder / model.config),
        checkpoint_uri="unread",
        item_input_uri="unread",
        sample_input_uri="unread",
        output_uri="unread",
    )
    try:
        return plan_export(spec, read_config(spec))
    except Exception:  # noqa: BLE001  the export reports it
        return ()


def _family_name(towers: tuple[TowerToExport, ...]) -> str:
    return towers[0].family if towers else "unknown"
