"""Kinds of hostile input, each read as an export, a prediction or the API would read it.

`python -m tests.hostile.kinds` prints them and how many there are; `… --run FOLDER` reads all of them, each
in a forked child with little memory and time, and prints as JSON what became of it.
"""

import json
import logging
import multiprocessing
import resource
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Literal

import structlog

from exporter.errors import ExportError

MODULES = (
    "checkpoints",
    "safetensors_files",
    "configs",
    "rows",
    "packages",
    "requests",
    "issuers",
    "unfolding",
    "long_errors",
    "outputs",
    "exchanges",
    "teams",
    "messages",
    "records",
    "state_dicts",
)
CANARY = "it_ran"  # a file that only code of the attacker's makes
SECONDS = 20
ROOM = 8 << 30  # bytes a child may map beside what it has
LONGEST = 4000  # characters of each text of an error
GROWTH = 300 << 20  # bytes it may be larger by afterwards

Attack = Callable[[Path], object]
End = Literal["refused", "unread", "read"]


@dataclass(frozen=True)
class Kind:
    """One kind: what it is, who reads it, and how that should end."""

    name: str
    reader: str
    attack: Attack
    ends: End  # `unread`: taken, and the hostile part of it ignored; `read`: in little memory and time


@dataclass(frozen=True)
class Outcome:
    """The result of trying one kind."""

    ended: str  # `refused`, `unread`, or what it should not be
    said: str
    ran: bool
    seconds: float
    grown: int  # bytes


KINDS: dict[str, Kind] = {}


def hostile(name: str, *, reader: str, ends: End = "refused") -> Callable[[Attack], Attack]:
    """Register a function that has the hostile input read, given an empty folder to make it in."""

    def register(attack: Attack) -> Attack:
        assert name not in KINDS
        KINDS[name] = Kind(name, reader, attack, ends)
        return attack

    return register


def load() -> dict[str, Kind]:
    """Return all kinds of hostile input."""
    for module in MODULES:
        import_module(f"tests.hostile.{module}")
    return KINDS


def attempt(kind: Kind, folder: Path) -> Outcome:
    """Read the hostile input here, and say how it ended."""
    begun, before = time.monotonic(), _resident()
    ended, said = ("read" if kind.ends == "read" else "unread"), ""
    try:
        kind.attack(folder)
    except ExportError as error:
        texts = (str(error), error.message, error.hint, error.where)
        ended = "refused" if max(map(len, texts)) < LONGEST else "refused at length"
        said = f"{error.code}: {error.message}"[:300]
    except BaseException as error:  # noqa: BLE001 (it is the report)
        ended, said = type(error).__name__, str(error)[:300]
    return Outcome(
        ended=ended,
        said=said,
        ran=(folder / CANARY).exists(),
        seconds=time.monotonic() - begun,
        grown=_resident() - before,
    )


def _resident() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def in_child(kind: Kind, folder: Path) -> Outcome:
    """The same in a child, which is killed when it takes too long."""
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)

    def run() -> None:
        mapped = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (mapped + ROOM, mapped + ROOM))
        signal.alarm(SECONDS + 5)
        sender.send(attempt(kind, folder))

    child = context.Process(target=run)
    child.start()
    sender.close()
    outcome = Outcome(ended="hung", said="", ran=False, seconds=SECONDS, grown=0)
    try:
        if receiver.poll(SECONDS):
            outcome = receiver.recv()
    except EOFError:
        outcome = replace(outcome, ended="died", ran=(folder / CANARY).exists())
    child.kill()
    child.join()
    return outcome


def table() -> str:
    """The kinds for people, as Markdown, with their number."""
    kinds = enumerate(KINDS.values(), 1)
    rows = [f"| {number} | {each.name} | {each.reader} | {each.ends} |" for number, each in kinds]
    head = ["| # | what | read by | ends |", "| --- | --- | --- | --- |"]
    return "\n".join([*head, *rows, "", f"{len(rows)} kinds"])


def main() -> None:
    from tests.hostile import kinds  # not this module run as a program: its registry is another

    kinds.load()
    if "--run" in sys.argv:
        logging.disable()  # what is refused need not be said twice
        structlog.configure(logger_factory=structlog.ReturnLoggerFactory())
        outcomes = {}
        for number, kind in enumerate(kinds.KINDS.values()):
            folder = Path(sys.argv[-1]) / str(number)
            folder.mkdir(parents=True)
            outcomes[kind.name] = asdict(kinds.in_child(kind, folder))
        sys.stdout.write(json.dumps(outcomes))
    else:
        sys.stdout.write(f"{kinds.table()}\n")


if __name__ == "__main__":
    main()
