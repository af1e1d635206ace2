"""Telling a lie: one export with the lie planted, and what became of it."""

import json
import os
import time
from dataclasses import dataclass
from pathlib import Path

from exporter.attempt.attempt import DIAGNOSTICS, Attempt
from exporter.distributed.ranks import Ranks
from exporter.errors import ExportError
from exporter.outcome import ExportOutcome, Failure
from exporter.pipeline.export import export
from exporter.spec import ExportSpec, TowerName
from tests.exporter.stage_events import ignore_stages
from tests.planted.lies.lie import Lie
from tests.planted.lies.model import write_sources

_ROOT = Path(__file__).parents[3]
# Python imports a module of the name sitecustomize whenever it starts.
_PLANTED_AT_START = """
import sys

if "exporter.minify.script_process" in sys.orig_argv:
    from tests.planted.lies.catalogue import lie_named

    planted = lie_named("{name}").plant()
    planted.__enter__()
"""


@dataclass(frozen=True, kw_only=True)
class Told:
    """One lie that was told: the failure that it ended in, None if it was published."""

    lie: Lie
    failure: Failure | None
    note: str  # on the code that was published
    published: bool  # there is a manifest
    smallest: tuple[str, ...]  # operators of the smallest case, if one was written
    seconds: float

    @property
    def is_caught(self) -> bool:
        """Whether it was not published, or only without what was wrong."""
        return not self.published or (self.lie.recovers and not self.missing)

    @property
    def missing(self) -> list[str]:
        """The words that the error's message should have, and has not."""
        message = self.failure.message if self.failure else self.note
        return [word for word in self.lie.says if word not in message]


def plant_everywhere(lie: Lie, site: Path) -> str:
    """Return a PYTHONPATH with which processes that try scripts plant the lie as well; `site` is in it."""
    (site / "sitecustomize.py").write_text(_PLANTED_AT_START.format(name=lie.name))
    return f"{site}{os.pathsep}{_ROOT}"


def tell(lie: Lie, installed: str, folder: Path) -> Told:
    """Export the lie's model with the lie planted; its family is installed under this name."""
    code_cache = str(folder / "code") if lie.warm else None
    if lie.reuses:
        code_cache = str(folder.parent / f"code_of_{lie.family}")
    fields = {
        "family": installed,
        "config": "{}",
        "max_batch_size": 512,
        **write_sources(lie.family, folder),
        **lie.spec,
    }
    spec = ExportSpec.model_validate(fields)
    if lie.warm:
        outcome = export_once(spec, folder / "honest", code_cache)
        assert outcome.failure is None and all(tower.entry for tower in outcome.towers), outcome
        spec = spec.model_copy(update={"output_uri": str(folder / "lied")})
    with lie.plant():
        started = time.monotonic()
        outcome = export_once(spec, folder / "work", code_cache)
        seconds = time.monotonic() - started
    failures = [outcome.failure, *(tower.failure for tower in outcome.towers)]
    return Told(
        lie=lie,
        failure=next(filter(None, failures), None),
        note=next((tower.entry.code_note for tower in outcome.towers if tower.entry), ""),
        published=any(Path(spec.output_uri).rglob("manifest.json")),
        smallest=_read_smallest(folder / "work"),
        seconds=seconds,
    )


def export_once(spec: ExportSpec, workspace: Path, code_cache: str | None) -> ExportOutcome:
    """Export as a worker's rank does, with files in `workspace`."""
    workspace.mkdir()
    attempt = Attempt(
        job_id="job",
        spec=spec,
        workspace=workspace,
        families=(spec.family,) if spec.family else (),
        code_cache=code_cache,
    )
    try:
        outcome = export(attempt, Ranks(), ignore_stages)
    except ExportError as error:
        return ExportOutcome(failure=Failure.of(error))
    assert outcome is not None
    return outcome


def _read_smallest(workspace: Path) -> tuple[str, ...]:
    found = workspace / TowerName.MODEL / DIAGNOSTICS / "smallest.json"
    return tuple(json.loads(found.read_text())["operators"]) if found.exists() else ()
