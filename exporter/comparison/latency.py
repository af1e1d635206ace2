"""Latency of two towers, called in turn in one process: what disturbs the machine disturbs both."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Literal, Self

import numpy as np
from numpy.typing import NDArray
from safetensors.torch import load_file, save_file
from torch import Tensor

from exporter.comparison.pair_process import CallRequest, PairReply, PairSetup, RoundsRequest, Side
from exporter.distributed.fork_server import ForkServer
from exporter.errors import InvalidArtifact, OutOfMemory
from exporter.reports.comparison import LatencyRatio
from exporter.serving.downloaded_tower import DownloadedTower
from exporter.verify.runner_process import CALL_LIMIT_S, RunnerProcess

_CHILD = "exporter.comparison.pair_process"
_WARM_UP = 3  # rounds
_FIRST_ROUNDS = 30  # before anybody looks whether more are needed
_MOST_ROUNDS = 2000
_WIDTH = 0.02  # enough is known when the interval's ends are this close to the ratio, as a fraction of it
_RESAMPLES = 1000
CONFIDENCE = 0.99  # of the interval


class PairRunner:
    """Two towers loaded into one process, as a context manager.

    Sharded tables are not looked up in that process: servers look rows up in their own way, and what is
    compared is the package behind the lookup.
    """

    def __init__(
        self,
        old: DownloadedTower,
        new: DownloadedTower,
        *,
        scratch: Path,
        threads: int = 1,
        limit_s: float = CALL_LIMIT_S,
        server: ForkServer | None = None,
    ) -> None:
        """Prepare to call both; tensors travel as files below `scratch`. A request may take `limit_s`.

        A `server` that runs packages starts the process at once.
        """
        self._towers = (old, new)
        self._limit_s = limit_s
        libraries = dict.fromkeys((*old.manifest.op_libraries, *new.manifest.op_libraries))
        self._setup = PairSetup(
            sides=(_side(old), _side(new)),
            op_libraries=tuple(libraries),
            threads=threads,
        )
        self._process = RunnerProcess(scratch, program=_CHILD, server=server)

    def __enter__(self) -> Self:
        self._process.__enter__()
        try:
            self._ask(self._setup)
        except BaseException:
            self._process.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.__exit__(kind, error, trace)

    def run(self, side: Literal[0, 1], inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Run the old (0) or the new tower (1) once.

        Raises:
            InvalidArtifact: the package refused the inputs.
            OutOfMemory: there was not enough memory for the call.
            PackageCrashed: the process died, or took too long and was ended.
        """
        outputs = self._process.folder / "outputs.safetensors"
        self._ask(CallRequest(side=side, inputs=self._write(side, inputs), outputs=outputs))
        return load_file(outputs)

    def compare(
        self, old: Mapping[str, Tensor], new: Mapping[str, Tensor], *, batch: int, seconds: float
    ) -> LatencyRatio:
        """Time both towers in turn, each on its own inputs of the same `batch` rows.

        Ends when the ratio is known well, after `seconds` and one round more at the latest.

        Raises:
            InvalidArtifact: a package refused the inputs.
            OutOfMemory: there was not enough memory for the calls.
            PackageCrashed: the process died, or took too long and was ended.
        """
        paths = (self._write(0, old), self._write(1, new))
        times: tuple[list[float], list[float]] = ([], [])
        left_s, rounds, warm_up = seconds, _FIRST_ROUNDS, _WARM_UP
        while True:
            request = RoundsRequest(inputs=paths, warm_up=warm_up, rounds=rounds, seconds=left_s)
            for kept, added in zip(times, self._ask(request).times_ms, strict=True):
                kept.extend(added)
            left_s = seconds - (sum(times[0]) + sum(times[1])) / 1e3
            ratio = estimate_ratio(*times, batch=batch)
            known = ratio.high <= ratio.ratio * (1 + _WIDTH) and ratio.low >= ratio.ratio * (1 - _WIDTH)
            if known or left_s <= 0 or ratio.rounds >= _MOST_ROUNDS:
                return ratio
            rounds, warm_up = min(ratio.rounds, _MOST_ROUNDS - ratio.rounds), 0

    def _write(self, side: int, inputs: Mapping[str, Tensor]) -> Path:
        lookup = self._towers[side].lookup
        entering = inputs if lookup is None else lookup(inputs)
        path = self._process.folder / f"inputs-{side}.safetensors"
        save_file({name: value.cpu().clone().contiguous() for name, value in entering.items()}, path)
        return path

    def _ask(self, request: PairSetup | CallRequest | RoundsRequest) -> PairReply:
        reply = self._process.exchange(request, PairReply, limit_s=self._limit_s)
        if reply.out_of_memory is not None:
            raise OutOfMemory(f"the process running both packages: {reply.out_of_memory}")
        if reply.failed is not None:
            raise InvalidArtifact(f"a package refused inputs that fit its manifest: {reply.failed}")
        return reply


def _side(tower: DownloadedTower) -> Side:
    return Side(chain=tower.chain, device=tower.manifest.device, tf32=tower.entry.tf32)


def estimate_ratio(old_ms: Sequence[float], new_ms: Sequence[float], *, batch: int) -> LatencyRatio:
    """Return the ratio of the medians with its interval, from times of calls that were made in turn.

    The interval comes from resampling blocks of rounds that follow each other. A disturbance lasts for many
    calls, so that single rounds are not independent, and an interval that took them for it would be too
    narrow on a busy machine.
    """
    old, new = np.asarray(old_ms, dtype=np.float64), np.asarray(new_ms, dtype=np.float64)
    ratio = float(np.median(new) / np.median(old))
    resampled = np.median(_resample(new), axis=1) / np.median(_resample(old), axis=1)
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(resampled, [tail, 1 - tail])
    return LatencyRatio(
        batch=batch,
        rounds=len(old),
        old_ms=float(np.median(old)),
        new_ms=float(np.median(new)),
        ratio=ratio,
        low=min(float(low), ratio),
        high=max(float(high), ratio),
        confidence=CONFIDENCE,
    )


def _resample(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return one drawn series per line: blocks of the series, in which both towers draw the same rounds."""
    length = max(1, round(len(values) ** 0.5))
    blocks = -(-len(values) // length)
    generator = np.random.default_rng(0)
    starts = generator.integers(0, len(values) - length + 1, size=(_RESAMPLES, blocks))
    rounds = (starts[:, :, None] + np.arange(length)).reshape(_RESAMPLES, -1)[:, : len(values)]
    return values[rounds]
