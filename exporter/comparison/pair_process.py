"""The child process that runs two towers and times their calls in turn; it imports no model code.

Started by `exporter.comparison.latency`. Reads one JSON request per line on stdin and answers each with one
JSON line on stdout, as `exporter.verify.reload` does.
"""

import importlib
import sys
import time
from pathlib import Path
from typing import TextIO

import torch
from pydantic import BaseModel, TypeAdapter
from safetensors.torch import load_file, save_file
from torch import Tensor

from exporter.aoti.out_of_memory import as_out_of_memory
from exporter.verify.reload import Chain, Link


class Side(BaseModel):
    """One of the two towers: its packages, and whether their calls of cuBLAS may round to TF32."""

    chain: tuple[Link, ...]
    device: str
    tf32: bool = False


class PairSetup(BaseModel):
    """The first line on stdin."""

    sides: tuple[Side, Side]
    op_libraries: tuple[str, ...]
    threads: int


class CallRequest(BaseModel):
    """Run one tower once on a file of inputs, and write its outputs."""

    side: int
    inputs: Path
    outputs: Path


class RoundsRequest(BaseModel):
    """Call the two towers in turn, each on its own file of inputs: as many rounds as fit into `seconds`."""

    inputs: tuple[Path, Path]
    warm_up: int  # rounds before the first that counts
    rounds: int  # at most
    seconds: float


class PairReply(BaseModel):
    """Milliseconds of each call, round by round and one list per tower; or the reason why nothing was run."""

    times_ms: tuple[list[float], list[float]] = ([], [])
    failed: str | None = None
    out_of_memory: str | None = None


def main(requests: TextIO, replies: TextIO) -> None:
    setup = PairSetup.model_validate_json(requests.readline())
    torch.set_num_threads(setup.threads)
    for library in setup.op_libraries:
        importlib.import_module(library)
    try:
        pair = Pair(setup.sides)
    except RuntimeError as error:
        _write_reply(replies, _explain(error))
        return
    _write_reply(replies, PairReply())
    for line in requests:
        _write_reply(replies, _handle(pair, _REQUEST.validate_json(line)))


_REQUEST: TypeAdapter[CallRequest | RoundsRequest] = TypeAdapter(CallRequest | RoundsRequest)


class Pair:
    """Two loaded towers."""

    def __init__(self, sides: tuple[Side, Side]) -> None:
        self._sides = [LoadedSide(side) for side in sides]

    def run(self, request: CallRequest) -> None:
        """Run one tower and write its outputs."""
        side = self._sides[request.side]
        outputs = side.call(side.load(request.inputs))
        save_file({name: value.cpu().contiguous() for name, value in outputs.items()}, request.outputs)

    def run_rounds(self, request: RoundsRequest) -> tuple[list[float], list[float]]:
        """Return the milliseconds of each tower's calls; the tower that goes first changes every round."""
        inputs = [side.load(path) for side, path in zip(self._sides, request.inputs, strict=True)]
        times_ms: tuple[list[float], list[float]] = ([], [])
        for _ in range(request.warm_up):
            for side in (0, 1):
                self._sides[side].time(inputs[side])
        begun = time.perf_counter()
        while len(times_ms[0]) < request.rounds:
            for side in (0, 1) if len(times_ms[0]) % 2 == 0 else (1, 0):
                times_ms[side].append(self._sides[side].time(inputs[side]))
            if time.perf_counter() - begun > request.seconds:
                break
        return times_ms


class LoadedSide:
    """One loaded tower on its device."""

    def __init__(self, side: Side) -> None:
        self._device = torch.device(side.device)
        self._chain = Chain(side.chain, self._device)
        self._tf32 = side.tf32

    def load(self, path: Path) -> dict[str, Tensor]:
        """Return a file of inputs on the device."""
        return {name: tensor.to(self._device) for name, tensor in load_file(path).items()}

    def call(self, inputs: dict[str, Tensor]) -> dict[str, Tensor]:
        torch.backends.cuda.matmul.allow_tf32 = self._tf32  # of the process: the other tower may differ
        return self._chain(inputs)

    def time(self, inputs: dict[str, Tensor]) -> float:
        """Return the milliseconds of one call."""
        begun = time.perf_counter()
        self.call(inputs)
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
        return (time.perf_counter() - begun) * 1e3


def _handle(pair: Pair, request: CallRequest | RoundsRequest) -> PairReply:
    try:
        if isinstance(request, RoundsRequest):
            return PairReply(times_ms=pair.run_rounds(request))
        pair.run(request)
    except (RuntimeError, MemoryError) as error:
        return _explain(error)
    return PairReply()


def _explain(error: Exception) -> PairReply:
    """Return the answer to a request that could not be met."""
    if memory := as_out_of_memory(error):
        return PairReply(out_of_memory=memory.message)
    return PairReply(failed=(str(error).strip().partition("\n")[0] or type(error).__name__)[:500])


def _write_reply(replies: TextIO, reply: PairReply) -> None:
    replies.write(reply.model_dump_json() + "\n")
    replies.flush()


if __name__ == "__main__":
    main(sys.stdin, sys.stdout)
