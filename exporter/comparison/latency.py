"""Latency of two towers, called in turn in one process: what disturbs the machine disturbs both."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
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
_MOST_ROUNDS_FOR_BOUND = 16_000
_WIDTH = 0.02  # enough is known when the interval's ends are this close to the ratio, as a fraction of it
_RESAMPLES = 1000
_DRAWN_AT_ONCE = 1 << 21  # numbers of resampled series in memory
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
        self,
        old: Mapping[str, Tensor],
        new: Mapping[str, Tensor],
        *,
        batch: int,
        seconds: float,
        bound: float | None = None,
        patience_s: float = 0.0,
    ) -> LatencyRatio:
        """Time both towers in turn, each on its own inputs of the same `batch` rows.

        Ends when the ratio is known well, after `seconds` and one round more at the latest. With a `bound`
        it goes on for `patience_s` seconds at most while the bound lies within what is known of the ratio.

        Raises:
            InvalidArtifact: a package refused the inputs.
            OutOfMemory: there was not enough memory for the calls.
            PackageCrashed: the process died, or took too long and was ended.
        """
        calls = _TimedCalls(inputs=(self._write(0, old), self._write(1, new)), batch=batch)
        ratio = self._time(calls, _is_well_known, seconds=seconds, most=_MOST_ROUNDS)
        if bound is not None and ratio.is_above(bound) is None:
            ratio = self._time(
                calls,
                lambda found: found.is_above(bound) is not None,
                seconds=patience_s,
                most=_MOST_ROUNDS_FOR_BOUND,
            )
        return ratio

    def _time(
        self, calls: "_TimedCalls", is_enough: Callable[[LatencyRatio], bool], *, seconds: float, most: int
    ) -> LatencyRatio:
        """Add rounds to those that were timed, as many again each time, until their ratio is enough."""
        left_s = seconds
        while True:
            done = len(calls.times_ms[0])
            request = RoundsRequest(
                inputs=calls.inputs,
                warm_up=0 if done else _WARM_UP,
                rounds=min(max(done, _FIRST_ROUNDS), most - done),
                seconds=left_s,
            )
            for kept, added in zip(calls.times_ms, self._ask(request).times_ms, strict=True):
                kept.extend(added)
                left_s -= sum(added) / 1e3
            ratio = estimate_ratio(*calls.times_ms, batch=calls.batch)
            if is_enough(ratio) or left_s <= 0 or ratio.rounds >= most:
                return ratio

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


@dataclass(frozen=True, kw_only=True)
class _TimedCalls:
    """Inputs of both towers, and the times of the rounds that they were called for."""

    inputs: tuple[Path, Path]
    batch: int
    times_ms: tuple[list[float], list[float]] = field(default_factory=lambda: ([], []))


def _is_well_known(ratio: LatencyRatio) -> bool:
    return ratio.high <= ratio.ratio * (1 + _WIDTH) and ratio.low >= ratio.ratio * (1 - _WIDTH)


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
    resampled = _resample_ratio(old, new)
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


def _resample_ratio(old: NDArray[np.float64], new: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the ratios of resampled pairs of series: blocks, in which both towers draw the same rounds."""
    length = max(1, round(len(old) ** 0.5))
    blocks = -(-len(old) // length)
    generator = np.random.default_rng(0)
    starts = generator.integers(0, len(old) - length + 1, size=(_RESAMPLES, blocks))
    ratios = []
    for some in np.array_split(starts, max(1, _RESAMPLES * len(old) // _DRAWN_AT_ONCE)):
        rounds = (some[:, :, None] + np.arange(length)).reshape(len(some), -1)[:, : len(old)]
        ratios.append(np.median(new[rounds], axis=1) / np.median(old[rounds], axis=1))
    return np.concatenate(ratios)
