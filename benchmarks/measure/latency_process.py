"""One process of the latency benchmark: call every contender of some towers with a number of threads.

The process reads a request file and writes the file that the request names. Contenders are called in turn on
the same batch, so that other work on the machine affects all of them alike.
"""

import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from pydantic import BaseModel
from torch import Tensor

from exporter.checkpoint.read import open_checkpoint
from exporter.construction.open_blueprint import ConfiguredBlueprint
from exporter.construction.sources import open_rows
from exporter.data.batch import trace_inputs
from exporter.data.rows import Rows, named_batch
from exporter.serving.downloaded_tower import download_tower
from exporter.spec import ExportSpec, TowerName
from exporter.storage.open import read_uri
from exporter.towers.plan import plan_towers
from exporter.towers.tower import Tower
from exporter.trace.trace_tower import trace_tower
from exporter.verify.reload import Chain

EAGER, COMPILED, PACKAGE, TWO_PACKAGES = "eager", "torch.compile", "package", "two packages"
CONTENDERS = (EAGER, COMPILED, PACKAGE, TWO_PACKAGES)
_ROWS, _MOST_BATCHES = 1024, 8  # rows of all batches of a size, and how many batches there are at most
_SEED = 3
_AGREE = 1e-3  # of the largest magnitude: contenders must compute the same function

Call = Callable[[dict[str, Tensor]], Mapping[str, Tensor]]


class Subject(BaseModel):
    """A tower, and its artifacts in both modes; without the second, eager and package alone are compared."""

    name: str
    tower: TowerName
    spec: ExportSpec
    unified: Path
    two_stage: Path | None = None


class LatencyRequest(BaseModel):
    """The towers to measure, and how many calls to make."""

    subjects: tuple[Subject, ...]
    sizes: tuple[int, ...]
    threads: int
    rounds: int
    round_s: float  # seconds for one contender on one batch size
    most_calls: int  # the most calls in a round
    scratch: Path
    result: Path


class CallTimes(BaseModel):
    """Milliseconds of a contender's calls, by round: elapsed time, and processor time of all threads."""

    subject: str
    size: int
    values: float  # elements of all inputs of a batch, on average
    contender: str
    rounds: tuple[tuple[float, ...], ...]
    work: tuple[tuple[float, ...], ...]


class LatencyTimes(BaseModel):
    """Everything that the process measured."""

    threads: int
    times: tuple[CallTimes, ...]


@dataclass
class RoundTimes:
    """Milliseconds of a contender's calls, in order."""

    waited: list[float] = field(default_factory=list)
    worked: list[float] = field(default_factory=list)


def main() -> None:
    request = LatencyRequest.model_validate_json(Path(sys.argv[1]).read_text())
    torch.set_num_threads(request.threads)
    times = [each for subject in request.subjects for each in _measure(subject, request)]
    request.result.write_text(LatencyTimes(threads=request.threads, times=tuple(times)).model_dump_json())


def _measure(subject: Subject, request: LatencyRequest) -> list[CallTimes]:
    config = read_uri(str(subject.spec.config_uri)).decode()
    [planned] = [each for each in plan_towers(subject.spec, config) if each.name is subject.tower]
    blueprint = ConfiguredBlueprint(planned, subject.spec.tables)
    tower = blueprint.build()
    blueprint.fill(tower, open_checkpoint(Path(subject.spec.checkpoint_uri)))
    rows, _ = open_rows(planned, subject.spec)
    calls = _calls(subject, tower, rows, request.scratch)
    measured = []
    for size in request.sizes:
        batches = _batches(rows, tower, size)
        with torch.no_grad():
            _warm_up(calls, batches, where=f"{subject.name}, batch {size}")
            rounds = [_run_round(calls, batches, request, number) for number in range(request.rounds)]
        measured += [
            CallTimes(
                subject=subject.name,
                size=size,
                values=float(np.mean([sum(each.numel() for each in batch.values()) for batch in batches])),
                contender=name,
                rounds=tuple(tuple(each[name].waited) for each in rounds),
                work=tuple(tuple(each[name].worked) for each in rounds),
            )
            for name in calls
        ]
        sys.stdout.write(f"  {subject.name}, {request.threads} threads, batch {size}\n")
        sys.stdout.flush()
    return measured


def _calls(subject: Subject, tower: Tower, rows: Rows, scratch: Path) -> dict[str, Call]:
    """Return the calls by contender; torch.compile gets the traced program, so that it stays in one piece."""
    unified: dict[str, Call] = {EAGER: tower.module, PACKAGE: _chain(subject.unified, subject, scratch)}
    if subject.two_stage is None:
        return unified
    program = trace_tower(tower, trace_inputs(rows, tower.plan), torch.device("cpu"))
    compiled: Call = torch.compile(program.module(check_guards=False), dynamic=True)
    return unified | {COMPILED: compiled, TWO_PACKAGES: _chain(subject.two_stage, subject, scratch)}


def _chain(artifact: Path, subject: Subject, scratch: Path) -> Call:
    tower = download_tower(str(artifact), subject.tower, scratch / f"{artifact.name}-{subject.tower}")
    return Chain(tower.chain, torch.device("cpu"))


def _batches(rows: Rows, tower: Tower, size: int) -> list[dict[str, Tensor]]:
    """Draw batches of random rows, the same in every process."""
    random = np.random.default_rng(_SEED)
    count = min(max(_ROWS // size, 2), _MOST_BATCHES)
    drawn = [rows.select(random.integers(len(rows), size=size)) for _ in range(count)]
    return [named_batch("drawn", each, tower.plan).inputs for each in drawn]


def _warm_up(calls: Mapping[str, Call], batches: list[dict[str, Tensor]], *, where: str) -> None:
    """Call every contender twice on every batch, and require that they agree."""
    for batch in batches:
        expected = calls[EAGER](batch)
        for name, call in calls.items():
            call(batch)
            given = call(batch)
            for output, value in expected.items():
                scale = float(value.abs().max()) or 1.0
                apart = float((given[output] - value).abs().max()) / scale
                if apart > _AGREE:
                    raise SystemExit(f"{where}: {name} and eager differ by {apart:.2g} of {output}")


def _run_round(
    calls: Mapping[str, Call], batches: list[dict[str, Tensor]], request: LatencyRequest, number: int
) -> dict[str, RoundTimes]:
    """Call each contender as often as the time allows, at least once per batch, in alternating order."""
    names = list(calls)
    times = {name: RoundTimes() for name in names}
    end = time.perf_counter() + request.round_s * len(names)
    call = 0
    while call < len(batches) or (call < request.most_calls and time.perf_counter() < end):
        batch = batches[call % len(batches)]
        for turn in range(len(names)):
            name = names[(turn + call + number) % len(names)]
            worked, begun = time.process_time(), time.perf_counter()
            calls[name](batch)
            times[name].waited.append((time.perf_counter() - begun) * 1e3)
            times[name].worked.append((time.process_time() - worked) * 1e3)
        call += 1
    return times


if __name__ == "__main__":
    main()
