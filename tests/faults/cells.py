"""Run a job through one fault at one stage, and see what it broke."""

import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass

from exporter.spec import ExportSpec, TowerName
from exporter.stages import Stage
from jobs.model import Job, JobState
from tests.faults.faults import NAMES, Scene
from tests.faults.holding import Hold
from tests.faults.invariants import TOLD_S, broken
from tests.faults.observer import wait_for_end
from tests.faults.programs import wait_until
from tests.faults.stack import FaultStack

_HELD_S = 240.0
_END_S = 420.0  # of a model that is compiled anew, on a busy machine
_ANY_END = frozenset({JobState.SUCCEEDED, JobState.FAILED})
_DONE = frozenset({JobState.SUCCEEDED})
_REFUSED = frozenset({JobState.FAILED})
_STOPPED = frozenset({JobState.CANCELLED})
_ONE, _TWO = frozenset({1}), frozenset({2})
_TRIED = frozenset({1, 2, 3})  # as often as the fault's length and the pauses between tries have it
_ATTEMPTS: Mapping[str, frozenset[int]] = {  # the others cost no attempt
    "kill -9 of the tower's process": _TRIED,
    "kill -9 of a rank": _TWO,
    "kill -9 of the attempt": _TWO,
    "kill -9 of the guard": _TWO,
    "kill -9 of the worker": _TWO,
    "kill -9 of the worker, clock an hour back": _TWO,
    "SIGTERM of the worker": _TWO,
    "worker stands still": _TWO,
    "S3 cut off": _TRIED,
    "S3 resets": _TRIED,
    "S3 slow": _TRIED,
    "S3 answers 500": _TRIED,
    "S3 answers 503": _TRIED,
    "S3 damages a file": _TWO,
    "disk full": _TRIED,
    "every attempt is killed": frozenset({3}),
    "every worker is killed": _TWO,
    "last worker is killed when it has published": _TWO,
}


@dataclass(frozen=True)
class Point:
    """The stage, and the event in it, at which an attempt is held."""

    stage: Stage | None  # None: before any attempt
    kind: str = "started"

    def __str__(self) -> str:
        if self.stage is None:
            return "queued"
        words = {"started": "", "progress": ", half way", "finished": ", at its end"}
        return f"{self.stage}{words[self.kind]}"


@dataclass(frozen=True)
class Cell:
    """A fault at a point, and the states in which the job may end."""

    fault: str
    point: Point
    ends: frozenset[JobState] = _DONE
    both: bool = False  # towers, on two ranks

    @property
    def attempts(self) -> frozenset[int]:
        """The numbers of attempts that the job may take."""
        return _ATTEMPTS.get(self.fault, _ONE)

    def __str__(self) -> str:
        return f"{self.fault} @ {self.point}{' of two towers' if self.both else ''}"


@dataclass(frozen=True)
class Result:
    """The result of a cell: a row of the table."""

    fault: str
    point: str
    kind: str  # of its attempts: real, light
    state: str
    attempts: int
    seconds: float
    broken: tuple[str, ...]

    def row(self) -> dict[str, object]:
        return asdict(self)


RESULTS: list[Result] = []  # of this run, for its table

CONFIG, CHECKPOINT, ROWS = Point(Stage.CONFIG), Point(Stage.CHECKPOINT), Point(Stage.ROWS)
TRACE, COMPILE, VERIFY = Point(Stage.TRACE), Point(Stage.COMPILE), Point(Stage.VERIFY)
PUBLISH, HALF = Point(Stage.PUBLISH), Point(Stage.PUBLISH, "progress")
PUBLISHED = Point(Stage.PUBLISH, "finished")
_ALL = (CONFIG, CHECKPOINT, ROWS, TRACE, COMPILE, VERIFY, PUBLISH, HALF, PUBLISHED)
_TOWER = (CONFIG, CHECKPOINT, ROWS, TRACE, COMPILE, VERIFY)  # which a tower's own process goes through
_SOME = (CONFIG, TRACE, VERIFY, HALF, PUBLISHED)
_STORE = (CONFIG, CHECKPOINT, PUBLISH, HALF, PUBLISHED)  # after which the object store is read or written


def _cells(fault: str, points: Iterable[Point], ends: frozenset[JobState] = _DONE) -> list[Cell]:
    assert fault in NAMES
    return [Cell(fault, point, ends) for point in points]


# At attempts that export a recorded model: what happens to processes that light ones have not.
REAL_CELLS = [
    *_cells("kill -9 of the tower's process", _TOWER, _ANY_END),
    *_cells("kill -9 of a rank", (CONFIG, COMPILE, VERIFY, HALF, PUBLISHED)),
    *_cells("kill -9 of the attempt", (TRACE, VERIFY, HALF)),
    *_cells("kill -9 of the guard", (TRACE, VERIFY, HALF)),
    *_cells("kill -9 of the worker", (TRACE, VERIFY)),
    *_cells("SIGTERM of the worker", (COMPILE, VERIFY)),
    *_cells("worker stands still", (VERIFY,)),
    *_cells("S3 answers 503", (CHECKPOINT,)),
    *_cells("S3 damages a file", (PUBLISH,)),
    Cell("kill -9 of a rank", VERIFY, both=True),
    Cell("SIGTERM of the worker", HALF, both=True),
]
# At light ones: what happens to everything around an attempt, wherever it is.
LIGHT_CELLS = [
    *_cells("kill -9 of the attempt", _ALL),
    *_cells("kill -9 of the worker", _ALL),
    *_cells("kill -9 of the worker, clock an hour back", (VERIFY,)),
    *_cells("SIGTERM of the worker", _ALL),
    *_cells("worker stands still", (CHECKPOINT, *_SOME)),
    *_cells("all workers stand still", (PUBLISH, HALF, PUBLISHED)),
    *_cells("kill -9 of the API", _SOME),
    *_cells("Redis killed and restarted", _ALL),
    *_cells("Redis cut off", _SOME),
    *_cells("Redis cut off twice", (VERIFY,)),
    *_cells("Redis cut off for 30 s", (CHECKPOINT, PUBLISH, HALF)),
    *_cells("Redis resets", _ALL),
    *_cells("Redis out of memory", _ALL),
    *_cells("clock an hour ahead", _ALL),
    *_cells("clock an hour back", _ALL),
    *_cells("job given to two, thrice", _ALL),
    *_cells("S3 cut off", _STORE),
    *_cells("S3 resets", _STORE),
    *_cells("S3 slow", (CONFIG, PUBLISH, HALF)),
    *_cells("S3 answers 500", _STORE),
    *_cells("S3 answers 503", (CHECKPOINT, PUBLISH, PUBLISHED)),
    *_cells("S3 denies access", (CONFIG, CHECKPOINT), _REFUSED),
    *_cells("S3 damages a file", (PUBLISH,)),
    *_cells("cancelled between two attempts", (CHECKPOINT, HALF, PUBLISHED), _STOPPED),
    *_cells("cancelled when its worker is dead", (VERIFY, HALF), _STOPPED),
]
DISK_CELLS = _cells("disk full", (CHECKPOINT, VERIFY, PUBLISH), _ANY_END)


def run(cell: Cell, stack: FaultStack, spec: ExportSpec) -> Result:
    """Hold a job's attempt at the point, break something, and see the job to its end."""
    assert cell.point.stage is not None
    stack.hold.ask(Hold(stage=cell.point.stage, kind=cell.point.kind))
    begun = time.monotonic()
    job_id = stack.submit(spec if cell.both else one_tower(spec))
    try:
        wait_until(f"an attempt is at {cell.point}", stack.hold.held, _HELD_S, stack.workers[0].log)
        held = stack.hold.held()
        assert held is not None
        NAMES[cell.fault](Scene(stack, job_id, held))
        job = wait_for_end(stack.observer, job_id, _END_S)
        if cell.fault == "clock an hour ahead":  # set back before that, it would be another fault
            wait_until("its end is told", lambda: bool(stack.receiver.ends_told(job_id)), TOLD_S)
    except AssertionError as error:  # what was waited for did not come
        seconds = round(time.monotonic() - begun, 1)
        lost = (str(error)[:300],)
        RESULTS.append(Result(cell.fault, str(cell.point), stack.kind, "lost", 0, seconds, lost))
        raise
    finally:
        stack.heal()
    return result_of(cell, job, stack, begun)


def result_of(cell: Cell, job: Job, stack: FaultStack, begun: float) -> Result:
    """Check everything that must hold now that the job has ended."""
    wrong = broken(stack, job.id, clock_set="clock" in cell.fault)
    if job.state not in cell.ends:
        wrong.append(f"it ended {job.state}: {job.failure and job.failure.message}")
    if job.attempt not in cell.attempts:
        wrong.append(f"it took {job.attempt} attempts")
    seconds = round(time.monotonic() - begun, 1)
    told = (cell.fault, str(cell.point), stack.kind, str(job.state), job.attempt, seconds)
    result = Result(*told, tuple(wrong))
    RESULTS.append(result)
    return result


def one_tower(spec: ExportSpec) -> ExportSpec:
    """Return the same export of the smaller tower alone."""
    return spec.model_copy(update={"towers": (TowerName.ITEM,)})
