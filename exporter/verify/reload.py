"""The child process that loads packages and runs them; it imports torch and op libraries, no model code.

Started by `exporter.verify.runner`. Reads one JSON request per line on stdin and answers each with one
JSON line on stdout. Native code that crashes takes only this process with it.
"""

import importlib
import json
import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TextIO

import torch
from pydantic import BaseModel
from safetensors.torch import load_file, save_file

from exporter.aoti.load import load_package
from exporter.aoti.out_of_memory import as_out_of_memory


class Link(BaseModel):
    """One package of a chain, and the order in which it takes its inputs."""

    package: Path
    order: tuple[str, ...]


class Setup(BaseModel):
    """The first line on stdin. Each package of the chain takes the outputs of the one before it, by name."""

    chain: tuple[Link, ...]
    op_libraries: tuple[str, ...]
    device: str
    threads: int
    tf32: bool = False  # allow TF32 to the packages' calls of cuBLAS


class RunRequest(BaseModel):
    """Run the chain once on a file of inputs; `repeats` more times to time it."""

    inputs: Path
    outputs: Path
    repeats: int = 0


class RunReply(BaseModel):
    """The answer: outputs were written, or the package refused the inputs, or memory ran out."""

    refused: str | None = None
    out_of_memory: str | None = None
    median_ms: float | None = None


def main(requests: TextIO, replies: TextIO) -> None:
    setup = Setup.model_validate_json(requests.readline())
    torch.set_num_threads(setup.threads)
    torch.backends.cuda.matmul.allow_tf32 = setup.tf32
    for library in setup.op_libraries:
        importlib.import_module(library)
    device = torch.device(setup.device)
    try:
        chain = Chain(setup.chain, device)
    except RuntimeError as error:
        _write_reply(replies, _out_of_memory_reply(error))
        return
    _write_reply(replies, RunReply())
    for line in requests:
        _write_reply(replies, _handle(chain, RunRequest.model_validate_json(line), device))


class Chain:
    """Loaded packages, run one after the other."""

    def __init__(self, links: Sequence[Link], device: torch.device, *, single_threaded: bool = False) -> None:
        self._links = [
            (load_package(link.package, device, single_threaded=single_threaded), link.order)
            for link in links
        ]

    def __call__(self, tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        for package, order in self._links:
            tensors = package({name: tensors[name] for name in order})
        return tensors


def _handle(chain: Chain, request: RunRequest, device: torch.device) -> RunReply:
    """Answer one request; after one that runs out of memory the next one may fit."""
    try:
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
    inputs = {name: tensor.to(device) for name, tensor in load_file(request.inputs).items()}
    try:
        outputs = {name: value.cpu().contiguous() for name, value in chain(inputs).items()}
    except RuntimeError as error:
        if as_out_of_memory(error):  # no refusal of the inputs
            raise
        _finish(device)  # raises if the GPU's context is broken, after which this process is of no use
        return RunReply(refused=_first_line(str(error)))
    save_file(outputs, request.outputs)
    times_ms = []
    for _ in range(request.repeats):
        begun = time.perf_counter()
        chain(inputs)
        _finish(device)
        times_ms.append((time.perf_counter() - begun) * 1e3)
    return RunReply(median_ms=statistics.median(times_ms) if times_ms else None)


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
