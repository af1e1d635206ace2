"""Slipway and another program, run in turn: rounds of exports, and rounds of calls of their packages."""

import shutil
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import BaseModel

from benchmarks.contest.contract import Contender, ContenderFailed, LatencyOrder, Taken, require_same
from benchmarks.contest.models import ContestModel, name_others
from benchmarks.harness.command import Run
from benchmarks.harness.statistics import Spread, ratios

FRESH, NEW_WEIGHTS, NEW_MODEL = "fresh", "new-weights", "new-model"
SITUATIONS = (FRESH, NEW_WEIGHTS, NEW_MODEL)
SIZES = (1, 8, 32, 128, 512)
_FEW_SIZES = (1, 8)
_CALLS_S, _FEW_CALLS_S = 0.7, 0.05


class ExportRatios(BaseModel):
    """Our time over the peer's for one model in one situation, round by round."""

    model: str
    situation: str
    wall: Spread
    work: Spread  # processor time of all processes, which other work on the machine hardly changes


class LatencyRatios(BaseModel):
    """Our p50 over the peer's for one tower, number of threads and size of batch, round by round."""

    model: str
    tower: str
    threads: int
    size: int
    p50: Spread


@dataclass(kw_only=True)
class Contest:
    """Two programs that are compared, and a line for each part that one of them has failed to do."""

    run: Run
    ours: Contender
    peer: Contender  # exports
    timed: Contender  # exports the packages whose calls are timed, and times them
    cores: int
    situations: tuple[str, ...] = SITUATIONS  # new weights follow a fresh machine's export
    failures: list[str] = field(default_factory=list)

    def compare_exports(self, name: str) -> list[ExportRatios]:
        """Export a model in each situation; one in which a program has failed is not tried again."""
        model = ContestModel.of(name, self.run.folder)
        done: dict[str, list[tuple[Taken, Taken]]] = {situation: [] for situation in self.situations}
        for number in range(self._rounds):
            for situation, pairs in done.items():
                possible = len(done[FRESH]) > number if situation == NEW_WEIGHTS else len(pairs) == number
                if possible:
                    with self._noting():
                        pairs.append(self._export_in_turn(model, situation, number))
        return [
            ExportRatios(
                model=model.name,
                situation=situation,
                wall=ratios([ours.wall for ours, _ in pairs], [peers.wall for _, peers in pairs]),
                work=ratios([ours.work for ours, _ in pairs], [peers.work for _, peers in pairs]),
            )
            for situation, pairs in done.items()
            if pairs
        ]

    def compare_calls(self, name: str, threads: tuple[int, ...]) -> list[LatencyRatios]:
        """Time calls of each tower of a model with each number of threads."""
        model = ContestModel.of(name, self.run.folder)
        found: list[LatencyRatios] = []
        with self._noting():
            packages = [self._export_package(contender, model) for contender in (self.ours, self.timed)]
            batches = model.write_batches(self._sizes)
            for tower, folder in batches.items():
                for count in threads:
                    with self._noting():
                        found += self._compare_tower(model, tower, folder, packages, count)
        return found

    @property
    def _rounds(self) -> int:
        return 1 if self.run.quick else self.run.rounds

    @property
    def _sizes(self) -> tuple[int, ...]:
        return _FEW_SIZES if self.run.quick else SIZES

    def _export_in_turn(self, model: ContestModel, situation: str, number: int) -> tuple[Taken, Taken]:
        """Let both export, the other one first in every second round."""
        pair = [self.ours, self.peer]
        taken = {
            contender.name: self._export_in(situation, contender, model, number)
            for contender in (pair[::-1] if number % 2 else pair)
        }
        ours, peers = taken[self.ours.name], taken[self.peer.name]
        self.run.say(f"{model.name}, round {number + 1}, {situation}: {ours.wall / peers.wall:.2f}")
        return ours, peers

    def _export_in(self, situation: str, contender: Contender, model: ContestModel, number: int) -> Taken:
        """Export with the caches that the situation is about; new weights follow a fresh machine's export."""
        caches = self._caches(contender)
        if situation != NEW_WEIGHTS:
            shutil.rmtree(caches, ignore_errors=True)
        if situation == NEW_MODEL:
            shutil.copytree(self._known(contender, model), caches, symlinks=True, ignore=_find_special)
        seed = 2 * number + (situation == NEW_WEIGHTS)
        order = model.order(seed=seed, output=self._output(contender), caches=caches)
        return contender.export(order, cores=self.cores)

    def _known(self, contender: Contender, model: ContestModel) -> Path:
        """Return the caches of an installation that has exported others, which are made at the first use.

        They were made in the folder in which they are used, for caches that depend on it.
        """
        others = name_others(model.name)
        known = self.run.folder / f"known-{contender.name}-{'-'.join(others)}"
        if not known.exists():
            caches = self._caches(contender)
            shutil.rmtree(caches, ignore_errors=True)
            for name in others:
                other = ContestModel.of(name, self.run.folder)
                order = other.order(seed=0, output=self._output(contender), caches=caches)
                if name == others[0]:
                    contender.install(order)
                contender.export(order, cores=self.cores)
            caches.rename(known)
        return known

    def _export_package(self, contender: Contender, model: ContestModel) -> Path:
        output = self._output(contender)
        contender.export(model.order(seed=0, output=output, caches=self._caches(contender)), cores=self.cores)
        return output

    def _compare_tower(
        self, model: ContestModel, tower: str, batches: Path, packages: list[Path], threads: int
    ) -> list[LatencyRatios]:
        pairs = [(self.ours, packages[0]), (self.timed, packages[1])]
        times: dict[str, list[Mapping[int, float]]] = {contender.name: [] for contender, _ in pairs}
        for number in range(self._rounds):
            printed = {
                contender.name: contender.time_batches(
                    LatencyOrder(
                        output=output,
                        tower=tower,
                        batches=batches,
                        sizes=self._sizes,
                        seconds=_FEW_CALLS_S if self.run.quick else _CALLS_S,
                    ),
                    threads=threads,
                )
                for contender, output in (pairs[::-1] if number % 2 else pairs)
            }
            require_same(printed[self.ours.name], printed[self.timed.name], self.timed)
            for name, lines in printed.items():
                times[name].append({size: line.p50_ms for size, line in lines.items()})
        ours, peers = times[self.ours.name], times[self.timed.name]
        found = [
            LatencyRatios(
                model=model.name,
                tower=tower,
                threads=threads,
                size=size,
                p50=ratios([each[size] for each in ours], [each[size] for each in peers]),
            )
            for size in self._sizes
        ]
        medians = ", ".join(f"{each.p50.median:.2f} at {each.size}" for each in found)
        self.run.say(f"{model.name} {tower}, threads: {threads}: {medians}")
        return found

    def _caches(self, contender: Contender) -> Path:
        return self.run.folder / f"caches-{contender.name}"

    def _output(self, contender: Contender) -> Path:
        return self.run.folder / f"output-{contender.name}"

    @contextmanager
    def _noting(self) -> Iterator[None]:
        """Note a program's failure, and go on after the block."""
        try:
            yield
        except ContenderFailed as error:
            self.failures.append(str(error))
            sys.stderr.write(f"{error}\n")


def _find_special(folder: str, names: list[str]) -> set[str]:
    """Find what cannot be copied, as sockets that processes have left among their temporary files."""
    paths = [Path(folder, name) for name in names]
    return {path.name for path in paths if not (path.is_symlink() or path.is_file() or path.is_dir())}
