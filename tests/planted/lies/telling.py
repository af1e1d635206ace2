"""Telling a lie: one export with the lie planted, in a process of its own, and what became of it."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from pydantic import BaseModel

from exporter.attempt.attempt import DIAGNOSTICS
from exporter.outcome import ExportOutcome, Failure
from exporter.spec import ExportSpec, TowerName
from tests.planted.lies.lie import Lie
from tests.planted.lies.model import recorded_sources, write_sources

LIMIT_S = 1200.0  # of a telling: the search for a smallest case alone may take most of it
_ROOT = Path(__file__).parents[3]
_TELLER = "tests.planted.lies.teller"
# Python imports a module of the name sitecustomize whenever it starts.
_PLANTED_AT_START = """
import sys

if "exporter.minify.script_process" in sys.orig_argv:
    from tests.planted.lies.catalogue import lie_named

    planted = lie_named("{name}").plant()
    planted.__enter__()
"""


class Order(BaseModel):
    """One export for the process of its own, which a lie may be planted in."""

    spec: ExportSpec
    workspace: Path  # made by the process
    code_cache: str | None = None
    lie: str | None = None  # its name; None: an honest export


class Answer(BaseModel):
    """What became of the export, and what it cost."""

    outcome: ExportOutcome
    processor_s: float  # of the process and of all that it started


@dataclass(frozen=True, kw_only=True)
class Told:
    """One lie that was told: the failure that it ended in, None if it was published."""

    lie: Lie
    failure: Failure | None
    note: str  # on the code that was published
    published: bool  # there is a manifest
    smallest: tuple[str, ...]  # operators of the smallest case, if one was written
    processor_s: float

    @property
    def is_caught(self) -> bool:
        """Whether it was not published, or only without what was wrong, and called by its name."""
        if self.missing:
            return False
        if self.lie.recovers:
            return self.published and self.failure is None
        return not self.published and self.failure is not None and self.failure.code == self.lie.code

    @property
    def missing(self) -> list[str]:
        """The words that the error's message should have, and has not."""
        message = self.failure.message if self.failure else self.note
        return [word for word in self.lie.says if word not in message]


def tell(lie: Lie, installed: str, folder: Path, kept_code: Path) -> Told:
    """Export the lie's model with the lie planted; its family is installed under this name, in `folder`.

    Lies about the steps behind the compiler share the code in `kept_code`.
    """
    code_cache = str(folder / "code") if lie.warm else str(kept_code) if lie.reuses else None
    model = (
        recorded_sources(lie.recorded, folder)
        if lie.recorded
        else {"family": installed, "config": "{}", **write_sources(lie.family, folder)}
    )
    spec = ExportSpec.model_validate({"max_batch_size": 512, **model, **lie.spec})
    if lie.warm:
        honest = Order(spec=spec, workspace=folder / "honest", code_cache=code_cache)
        outcome = export_apart(honest).outcome
        assert outcome.failure is None and all(tower.entry for tower in outcome.towers), outcome
        spec = spec.model_copy(update={"output_uri": str(folder / "lied")})
    answer = export_apart(Order(spec=spec, workspace=folder / "work", code_cache=code_cache, lie=lie.name))
    outcome = answer.outcome
    failures = [outcome.failure, *(tower.failure for tower in outcome.towers)]
    return Told(
        lie=lie,
        failure=next(filter(None, failures), None),
        note=next((tower.entry.code_note for tower in outcome.towers if tower.entry), ""),
        published=any(Path(spec.output_uri).rglob("manifest.json")),
        smallest=_read_smallest(folder / "work"),
        processor_s=answer.processor_s,
    )


def export_apart(order: Order, *, limit_s: float = LIMIT_S) -> Answer:
    """Export in a fresh process, which has computed nothing before it forks the towers' processes.

    The lie is planted in it, and in the processes that try scripts of the search for a smallest case. The
    families that are installed below the workspace's folder can be imported there. After `limit_s` seconds
    the process and all that it started are killed, and the test fails.
    """
    folder = order.workspace.parent
    site = folder / "site"
    site.mkdir(exist_ok=True)
    starts = site / "sitecustomize.py"
    starts.write_text(_PLANTED_AT_START.format(name=order.lie) if order.lie else "")
    order_file, answer_file, log = (
        order.workspace.with_suffix(suffix) for suffix in (".order", ".answer", ".log")
    )
    order_file.write_text(order.model_dump_json())
    with log.open("wb") as lines:
        process = subprocess.Popen(
            [
                "env",
                f"PYTHONPATH={site}{os.pathsep}{_ROOT}",
                sys.executable,
                "-m",
                _TELLER,
                str(order_file),
                str(answer_file),
            ],
            cwd=_ROOT,
            stdin=subprocess.DEVNULL,
            stdout=lines,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            status: int | str = process.wait(limit_s)
        except subprocess.TimeoutExpired:
            status = f"no end after {limit_s:.0f} s"
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
    if not answer_file.exists():
        pytest.fail(f"the export gave no answer: {status}\n{_last_lines(log)}")
    return Answer.model_validate_json(answer_file.read_text())


def _last_lines(log: Path) -> str:
    lines: Sequence[str] = log.read_text(errors="replace").splitlines()
    return "\n".join(lines[-30:])


def _read_smallest(workspace: Path) -> tuple[str, ...]:
    found = workspace / TowerName.MODEL / DIAGNOSTICS / "smallest.json"
    return tuple(json.loads(found.read_text())["operators"]) if found.exists() else ()
