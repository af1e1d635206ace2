"""Rows through the packages of two releases at the same time, each in a process of its own."""

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Literal, Self

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from exporter.comparison.latency import PairRunner
from exporter.distributed.fork_server import ForkServer
from exporter.errors import ExportError, InvalidRows
from exporter.release.labelled_rows import Inputs, LabelledBatch, LabelledRows
from exporter.serving.downloaded_tower import DownloadedTower
from exporter.serving.predict import find_unmet_demand
from exporter.verify.runner import PackageRunner, Refused
from exporter.verify.runner_process import RunnerProcess

Answers = dict[str, NDArray[np.float32]]  # output -> values of all rows


@dataclass(frozen=True, kw_only=True)
class ScoredBatch:
    """Rows with the answers of each tower; None of one that has failed."""

    rows: LabelledBatch
    answers: tuple[Answers | None, ...]


class TowerRunner:
    """One tower in a process of its own, called by a thread of its own; a context manager."""

    def __init__(
        self, tower: DownloadedTower, scratch: Path, where: str, server: ForkServer | None = None
    ) -> None:
        """Prepare to run `tower` on rows of `where`; the packages are loaded while rows are read.

        A `server` that runs packages starts the process at once.
        """
        self._server = server
        self._tower = tower
        self._scratch = scratch
        self._where = where
        self._running = ExitStack()

    def __enter__(self) -> Self:
        tower = self._tower
        process = self._running.enter_context(RunnerProcess(self._scratch, server=self._server))
        runner = PackageRunner(
            tower.chain,
            op_libraries=tower.manifest.op_libraries,
            scratch=self._scratch,
            device=tower.manifest.device,
            tf32=tower.entry.tf32,
            lookup=tower.lookup,
            ahead=process,
        )
        self._thread = self._running.enter_context(ThreadPoolExecutor(1))
        self._loaded = self._thread.submit(runner.__enter__)  # its process ends with this context
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._thread.shutdown(cancel_futures=True)
        self._running.close()

    def submit(self, calls: Sequence[Inputs]) -> Future[Answers]:
        """Run the calls after those that were submitted before; return their outputs, one after another."""
        return self._thread.submit(self._run, calls)

    def _run(self, calls: Sequence[Inputs]) -> Answers:
        runner = self._loaded.result()
        outputs: list[Mapping[str, Tensor]] = []
        for inputs in calls:
            try:
                outputs.append(runner.run(inputs))
            except Refused as refusal:
                unmet = find_unmet_demand(str(refusal), self._tower.entry.demands)
                name = self._tower.entry.name
                raise InvalidRows(
                    f"the package of the {name} tower refused rows of {self._where}: {unmet}",
                    where=self._where,
                ) from refusal
        return _join(outputs)


class _PairSide:
    """One of two towers in one process, called by the thread that both share."""

    def __init__(self, pair: Future[PairRunner], side: Literal[0, 1], thread: ThreadPoolExecutor) -> None:
        self._pair = pair
        self._side = side
        self._thread = thread

    def submit(self, calls: Sequence[Inputs]) -> Future[Answers]:
        return self._thread.submit(self._run, calls)

    def _run(self, calls: Sequence[Inputs]) -> Answers:
        pair = self._pair.result()
        return _join([pair.run(self._side, inputs) for inputs in calls])


def _join(outputs: Sequence[Mapping[str, Tensor]]) -> Answers:
    """Return the outputs of several calls, one after another."""
    return {name: np.concatenate([each[name].numpy() for each in outputs]) for name in outputs[0]}


class Scorer:
    """A tower of the candidate, and of the baseline where there is one, over all rows."""

    def __init__(
        self,
        rows: LabelledRows,
        towers: Sequence[DownloadedTower],
        scratch: Path,
        pair: Future[PairRunner] | None = None,
        server: ForkServer | None = None,
    ) -> None:
        """Prepare to score `rows`, whose calls are those of `towers`: the candidate first.

        A `pair` of the baseline and the candidate, which may still be loading, runs both in one process.
        Without it each has a process of its own, which a `server` starts at once.
        """
        self._server = server
        self._rows = rows
        self._towers = towers
        self._scratch = scratch
        self._pair = pair if len(towers) > 1 else None
        self.failure: ExportError | None = None  # of the baseline

    def batches(self) -> Iterator[ScoredBatch]:
        """Yield the rows with their answers; the next ones are encoded while packages run.

        A baseline in a process of its own that fails is left out from then on, and its failure kept.

        Raises:
            ExportError: a row cannot be read, or the candidate refused one, or crashed; of a pair, either.
        """
        with ExitStack() as running:
            runners: Sequence[TowerRunner | _PairSide]
            if self._pair is not None:
                thread = running.enter_context(ThreadPoolExecutor(1))
                runners = [_PairSide(self._pair, side, thread) for side in (1, 0)]
            else:
                runners = [
                    running.enter_context(TowerRunner(tower, self._scratch, self._rows.uri, self._server))
                    for tower in self._towers
                ]
            waiting: tuple[LabelledBatch, list[Future[Answers]]] | None = None
            for batch in self._rows.batches():
                futures = [runner.submit(calls) for runner, calls in zip(runners, batch.calls, strict=True)]
                if waiting is not None:
                    yield self._collect(*waiting)
                waiting = (batch, futures)
            if waiting is not None:
                yield self._collect(*waiting)

    def _collect(self, batch: LabelledBatch, futures: Sequence[Future[Answers]]) -> ScoredBatch:
        answers: list[Answers | None] = [futures[0].result()]
        for future in futures[1:]:
            try:
                answers.append(future.result())
            except ExportError as error:
                if self._pair is not None:
                    raise
                self.failure = self.failure or error
                answers.append(None)
        return ScoredBatch(rows=batch, answers=tuple(answers))
