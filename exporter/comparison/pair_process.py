"""The child process that calls two towers in turn and times each call; it imports no model code.

Started by `exporter.comparison.latency`. Reads one JSON request per line on stdin and answers each with one
JSON line on stdout, as `exporter.verify.reload` does.
"""

import importlib
import sys
import time
from pathlib import Path
from typing import TextIO

import torch
from pydantic import BaseModel
from safetensors.torch import load_file
from torch import Tensor

from exporter.aoti.out_of_memory import as_out_of_memory
from exporter.verify.reload import Chain, Link


class Side(BaseModel):
    """One of the two towers: its packages, and whether their calls of cuBLAS may round to TF32."""

    chain: tuple[Link, ...]
    tf32: bool = False


class PairSetup(BaseModel):
    """The first line on stdin."""

    sides: tuple[Side, Side]
    op_libraries: tuple[str, ...]
    device: str
    threads: int


class RoundsRequest(BaseModel):
    """Call the two towers in turn, each on its own file of inputs: as many rounds as fit into `seconds`."""

    inputs: tuple[Path, Path]
    warm_up: int  # rounds before the first that counts
    rounds: int  # at most
    seconds: float


class RoundsReply(BaseModel):
    """Milliseconds of each call, round by round and one list per tower; or the reason why there are none."""

    times_ms: tuple[list[float], list[float]] = ([], [])
    failed: str | None = None
    out_of_memory: str | None = None


def main(requests: TextIO, replies: TextIO) -> None:
    setup = PairSetup.model_validate_json(requests.readline())
    torch.set_num_threads(setup.threads)
    for library in setup.op_libraries:
        importlib.import_module(library)
    device = torch.device(setup.device)
    try:
        pair = Pair(setup.sides, device)
    except RuntimeError as error:
        _write_reply(replies, _explain(error))
        return
    _write_reply(replies, RoundsReply())
    for line in requests:
        _write_reply(replies, _handle(pair, RoundsRequest.model_validate_json(line)))


class Pair:
    """Two loaded towers, called in turn."""

    def __init__(self, sides: tuple[Side, Side], device: torch.device) -> None:
        self._device = device
        self._chains = [(Chain(side.chain, device), side.tf32) for side in sides]

    def run_rounds(self, request: RoundsRequest) -> tuple[list[float], list[float]]:
        """Return the milliseconds of each tower's calls; the tower that goes first changes every round."""
        inputs = [self._load(path) for path in request.inputs]
        times_ms: tuple[list[float], list[float]] = ([], [])
        for _ in range(request.warm_up):
            for side in (0, 1):
                self._time(side, inputs[side])
        begun = time.perf_counter()
        while len(times_ms[0]) < request.rounds:
            for side in (0, 1) if len(times_ms[0]) % 2 == 0 else (1, 0):
                times_ms[side].append(self._time(side, inputs[side]))
            if time.perf_counter() - begun > request.seconds:
                break
        return times_ms

    def _load(self, path: Path) -> dict[str, Tensor]:
        return {name: tensor.to(self._device) for name, tensor in load_file(path).items()}

    def _time(self, side: int, inputs: dict[str, Tensor]) -> float:
        chain, tf32 = self._chains[side]
        torch.backends.cuda.matmul.allow_tf32 = tf32
        begun = time.perf_counter()
        chain(inputs)
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
        return (time.perf_counter() - begun) * 1e3


def _handle(pair: Pair, request: RoundsRequest) -> RoundsReply:
    try:
        return RoundsReply(times_ms=pair.run_rounds(request))
    except (RuntimeError, MemoryError) as error:
        return _explain(error)


def _explain(error: Exception) -> RoundsReply:
    """Return the answer to a request that could not be met."""
    if memory := as_out_of_memory(error):
        return RoundsReply(out_of_memory=memory.message)
    return RoundsReply(failed=(str(error).strip().partition("\n")[0] or type(error).__name__)[:500])


def _write_reply(replies: TextIO, reply: RoundsReply) -> None:
    replies.write(reply.model_dump_json() + "\n")
    replies.flush()


if __name__ == "__main__":
    main(sys.stdin, sys.stdout)
