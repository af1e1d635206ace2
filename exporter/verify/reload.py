"""The child process that loads packages and runs them; it imports torch and op libraries, no model code.

Started by `exporter.verify.runner`. Reads one JSON request per line on stdin and answers each with one
JSON line on stdout. Native code that crashes takes only this process with it. With the number of a socket as
an argument it serves such processes, each a fork of this one.
"""

import importlib
import json
import math
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal, TextIO

import torch
from pydantic import BaseModel, TypeAdapter
from safetensors.torch import load_file, save_file

from exporter.aoti.load import load_package
from exporter.aoti.out_of_memory import as_out_of_memory
from exporter.aoti.torch_loader import Package
from exporter.options.layout import PackageKind
from exporter.torcheasyrec.scripted_file import ScriptedHalf
from exporter.verify.observe import (
    THREADS,
    Behaviour,
    CallsAtOnce,
    Growth,
    Tensors,
    call_at_once,
    filled_memory,
    find_changed,
    measure_growth,
    observe_call,
    other_threads,
)
from exporter.verify.observe_dtypes import TakenAs, find_unchecked_dtypes


class Link(BaseModel):
    """One package of a chain, and the order in which it takes its inputs; a scripted half takes them by name.

    What a scripted half returns, the next package takes as it is, in that order and not by name.
    """

    package: Path
    order: tuple[str, ...]
    kind: PackageKind = PackageKind.AOTI


class Setup(BaseModel):
    """The first line on stdin. Each package of the chain takes the outputs of the one before it, by name."""

    chain: tuple[Link, ...]
    op_libraries: tuple[str, ...]
    device: str
    threads: int
    tf32: bool = False  # allow TF32 to the packages' calls of cuBLAS


class RunRequest(BaseModel):
    """Run the chain on a file of inputs: once for its outputs, and again for times and to compare.

    After `limit_s` seconds of repeats no other begins; one is made in any case, if any is asked for.
    """

    inputs: Path
    outputs: Path
    moved: Path  # written where outputs of repeats are not those of the first run
    repeats: int = 0  # at most
    limit_s: float = math.inf

    @property
    def moved_by_threads(self) -> Path:
        """The file of outputs that are others with another number of threads, which one more repeat has."""
        return self.moved.with_stem("moved-by-threads")


class ObserveRequest(BaseModel):
    """Observe the chain on two files of inputs, each of which it takes: see `exporter.verify.observe`.

    Outputs of calls at once that differ from those of calls alone are written to `folder`.
    """

    observe: Literal["call", "growth", "calls_at_once", "steps"]
    inputs: Path
    others: Path
    folder: Path
    rounding: float  # of an output's scale: how far runs on the same inputs may differ

    def step(self, number: int) -> Path:
        """The file of the outputs of one package of the chain."""
        return self.folder / f"step-{number}.safetensors"

    def alone(self, thread: int) -> Path:
        """The file of a thread's outputs of a call alone."""
        return self.folder / f"alone-{thread}.safetensors"

    def at_once(self, thread: int) -> Path:
        """The file of a thread's outputs that differ most."""
        return self.folder / f"at-once-{thread}.safetensors"


_REQUESTS: TypeAdapter[RunRequest | ObserveRequest] = TypeAdapter(ObserveRequest | RunRequest)


class RunReply(BaseModel):
    """The answer: outputs were written, or the package refused the inputs, or memory ran out."""

    refused: str | None = None
    out_of_memory: str | None = None
    times_ms: tuple[float, ...] = ()  # of the repeats
    has_moved: bool = False  # outputs that a repeat changed were written, each at its furthest from the first
    has_moved_by_threads: bool = False  # the same, of a repeat with another number of threads
    changed_inputs: tuple[str, ...] = ()  # by calls whose repeats give other outputs
    taken: tuple[tuple[str, ...], ...] = ()  # names of the inputs of each package, once they are loaded
    steps: int = 0  # packages whose outputs were written
    call: Behaviour | None = None
    unchecked: tuple[TakenAs, ...] = ()  # inputs of other dtypes that were not refused
    growth: Growth | None = None
    calls_at_once: CallsAtOnce | None = None


def main(requests: TextIO, replies: TextIO) -> None:
    setup = Setup.model_validate_json(requests.readline())
    torch.set_num_threads(setup.threads)
    torch.backends.cuda.matmul.allow_tf32 = setup.tf32
    for library in setup.op_libraries:
        importlib.import_module(library)
    device = torch.device(setup.device)
    try:
        chain = Chain(setup.chain, device, runners=THREADS)
    except RuntimeError as error:
        _write_reply(replies, _out_of_memory_reply(error))
        return
    _write_reply(replies, RunReply(taken=chain.taken))
    for line in requests:
        _write_reply(replies, _handle(chain, _REQUESTS.validate_json(line), device))


class Chain:
    """Loaded packages, run one after the other."""

    def __init__(
        self,
        links: Sequence[Link],
        device: torch.device,
        *,
        single_threaded: bool = False,
        runners: int = 1,
    ) -> None:
        self._links: list[tuple[Package | ScriptedHalf, tuple[str, ...]]] = [
            (
                load_package(link.package, device, single_threaded=single_threaded, runners=runners)
                if link.kind is PackageKind.AOTI
                else ScriptedHalf(link.package, device, taken=link.order),
                link.order,
            )
            for link in links
        ]

    @property
    def taken(self) -> tuple[tuple[str, ...], ...]:
        """The names of the inputs of each package, in its order."""
        return tuple(package.taken for package, _ in self._links)

    def __call__(self, tensors: Tensors) -> Tensors:
        *_, outputs = self.steps(tensors)
        return outputs

    def steps(self, tensors: Tensors) -> Iterator[Tensors]:
        """Yield the outputs of each package in turn."""
        for place, (package, _) in enumerate(self._links):
            tensors = package(self._select_inputs(place, tensors))
            yield tensors

    def calls(self, tensors: Tensors) -> Iterator[tuple[Callable[[Tensors], Tensors], Tensors]]:
        """Yield each package with its own inputs."""
        for place, (package, _) in enumerate(self._links):
            given = self._select_inputs(place, tensors)
            yield package, given
            tensors = package(given)

    def call_unlocked(self, tensors: Tensors) -> Tensors:
        """Call as above, so that calls of other threads run at once, as they do in a server."""
        for place, (package, _) in enumerate(self._links):
            tensors = package.call_unlocked(self._select_inputs(place, tensors))
        return tensors

    def _select_inputs(self, place: int, tensors: Tensors) -> Tensors:
        """Return what a package takes of the outputs of the one before it."""
        if place and isinstance(self._links[place - 1][0], ScriptedHalf):
            return tensors
        return {name: tensors[name] for name in self._links[place][1]}


def _handle(chain: Chain, request: RunRequest | ObserveRequest, device: torch.device) -> RunReply:
    """Answer one request; after one that runs out of memory the next one may fit."""
    try:
        if isinstance(request, ObserveRequest):
            return _observe(chain, request, device)
        return _run(chain, request, device)
    except (RuntimeError, MemoryError) as error:
        return _out_of_memory_reply(error)


def _out_of_memory_reply(error: Exception) -> RunReply:
    """Return the answer to a request that ran out of memory; raise any other error again."""
    memory = as_out_of_memory(error)
    if memory is None:
        raise error
    return RunReply(out_of_memory=memory.message)


def _run(chain: Chain, request: RunRequest, device: torch.device) -> RunReply:
    inputs = _load(request.inputs, device)
    try:
        with filled_memory():
            outputs = {name: value.cpu().contiguous() for name, value in chain(inputs).items()}
    except RuntimeError as error:
        if as_out_of_memory(error):  # no refusal of the inputs
            raise
        _finish(device)  # raises if the GPU's context is broken, after which this process is of no use
        return RunReply(refused=_first_line(str(error)))
    save_file(outputs, request.outputs)
    times_ms: list[float] = []
    moved = _Moved(outputs)
    while len(times_ms) < request.repeats and sum(times_ms) < request.limit_s * 1e3:
        begun = time.perf_counter()
        again = chain(inputs)
        _finish(device)
        times_ms.append((time.perf_counter() - begun) * 1e3)
        moved.add(again)
    moved_by_threads = _Moved(outputs)
    if request.repeats:
        with other_threads():
            moved_by_threads.add(chain(inputs))
    if moved.outputs:
        save_file(moved.outputs, request.moved)
    if moved_by_threads.outputs:
        save_file(moved_by_threads.outputs, request.moved_by_threads)
    return RunReply(
        times_ms=tuple(times_ms),
        has_moved=bool(moved.outputs),
        has_moved_by_threads=bool(moved_by_threads.outputs),
        changed_inputs=find_changed(_load(request.inputs, device), inputs) if moved.outputs else (),
    )


class _Moved:
    """The outputs that a repeat changed, each from the repeat that changed it most."""

    def __init__(self, first: Mapping[str, torch.Tensor]) -> None:
        self._first = first
        self._furthest: dict[str, float] = {}
        self.outputs: dict[str, torch.Tensor] = {}

    def add(self, outputs: Mapping[str, torch.Tensor]) -> None:
        for name, value in outputs.items():
            again = value.cpu().contiguous()
            distance = _distance(self._first[name], again)
            if distance > self._furthest.get(name, 0.0):
                self._furthest[name], self.outputs[name] = distance, again


def _distance(first: torch.Tensor, again: torch.Tensor) -> float:
    """Return the largest difference between two runs; the same NaN or infinity in both is none."""
    if torch.equal(first, again):
        return 0.0
    if first.shape != again.shape or first.dtype != again.dtype:
        return math.inf
    one, other = first.double(), again.double()
    same = (one == other) | (one.isnan() & other.isnan())
    return float((one - other).abs().masked_fill(same, 0.0).nan_to_num(nan=math.inf).max())


def _observe(chain: Chain, request: ObserveRequest, device: torch.device) -> RunReply:
    inputs, others = (_load(path, device) for path in (request.inputs, request.others))
    if request.observe == "steps":
        return _write_steps(chain, request, inputs)
    try:
        call = observe_call(
            chain, inputs, others, request.rounding
        )  # in any case, as the other calls must be taken
    except RuntimeError as error:
        if as_out_of_memory(error):
            raise
        _finish(device)
        return RunReply(refused=_first_line(str(error)))
    if request.observe == "growth":
        return RunReply(growth=measure_growth(chain, inputs, request.rounding))
    if request.observe == "calls_at_once":

        def save(thread: int, alone: Tensors, differing: Tensors) -> None:
            _write_outputs(alone, request.alone(thread))
            _write_outputs(differing, request.at_once(thread))

        return RunReply(calls_at_once=call_at_once(chain.call_unlocked, (inputs, others), save))
    unchecked = find_unchecked_dtypes(chain.calls(inputs), request.rounding)
    return RunReply(call=call, unchecked=tuple(unchecked))


def _write_steps(chain: Chain, request: ObserveRequest, inputs: Tensors) -> RunReply:
    """Write the outputs of each package, up to one that refuses its inputs."""
    done = 0
    try:
        for outputs in chain.steps(inputs):
            _write_outputs(outputs, request.step(done))
            done += 1
    except (RuntimeError, KeyError) as error:
        if as_out_of_memory(error):
            raise
    return RunReply(steps=done)


def _write_outputs(outputs: Tensors, path: Path) -> None:
    save_file({name: value.cpu().clone().contiguous() for name, value in outputs.items()}, path)


def _load(path: Path, device: torch.device) -> Tensors:
    return {name: tensor.to(device) for name, tensor in load_file(path).items()}


def _finish(device: torch.device) -> None:
    """Wait for the GPU to finish; raises its errors."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _first_line(text: str) -> str:
    return next((line.strip() for line in text.splitlines() if line.strip()), "no message")[:500]


def _write_reply(replies: TextIO, reply: RunReply) -> None:
    replies.write(json.dumps(reply.model_dump()) + "\n")
    replies.flush()


if __name__ == "__main__":
    main(sys.stdin, sys.stdout)
