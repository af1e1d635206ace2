"""The child process in which `slipway predict` loads a tower as servers do, and calls it.

Started by `exporter.serving.tower_process`. Reads one JSON request per line on stdin, answers each with one
JSON line on stdout. Native code that crashes takes only this process with it.
"""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TextIO

import torch
from pydantic import BaseModel
from safetensors.torch import load_file, save_file
from torch import Tensor

from exporter.aoti.out_of_memory import as_out_of_memory
from slipway.loading.errors import CallFailed, InputRefused, LoaderError
from slipway.loading.tower import LoadedTower, load


class LoadRequest(BaseModel):
    """The first line on stdin: the tower of an artifact in a folder, whose files were checked."""

    artifact: Path
    tower: str
    tf32: bool  # allow TF32 to the packages' calls of cuBLAS
    has_lookup: bool  # with each call come tensors that were looked up


class CallRequest(BaseModel):
    """Call the tower on a file of inputs."""

    inputs: Path
    looked_up: Path | None  # what a lookup in front of the packages has found
    outputs: Path


class LoaderReply(BaseModel):
    """The answer: outputs were written, or why not."""

    refused: str | None = None  # the inputs are not as they must be
    out_of_memory: str | None = None
    failed: str | None = None  # for another reason


def main(requests: TextIO, replies: TextIO) -> None:
    request = LoadRequest.model_validate_json(requests.readline())
    torch.set_num_threads(1)
    torch.backends.cuda.matmul.allow_tf32 = request.tf32
    found: dict[str, Tensor] = {}

    def look_up(_: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        return found

    try:
        tower = load(
            request.artifact,
            request.tower,
            check="never",
            calls_at_once=1,
            lookup=look_up if request.has_lookup else None,
        )
    except LoaderError as error:
        _write(replies, _failure(error))
        return
    _write(replies, LoaderReply())
    for line in requests:
        call = CallRequest.model_validate_json(line)
        if call.looked_up is not None:
            found.update(load_file(call.looked_up, device=tower.device.type))
        _write(replies, _call(tower, call))


def _call(tower: LoadedTower, call: CallRequest) -> LoaderReply:
    try:
        outputs = tower(load_file(call.inputs, device=tower.device.type))
    except LoaderError as error:
        return _failure(error)
    save_file({name: value.cpu().contiguous() for name, value in outputs.items()}, call.outputs)
    return LoaderReply()


def _failure(error: LoaderError) -> LoaderReply:
    if memory := as_out_of_memory(error):
        return LoaderReply(out_of_memory=memory.message)
    if isinstance(error, InputRefused):
        return LoaderReply(refused=error.message)
    return LoaderReply(failed=error.message if isinstance(error, CallFailed) else str(error))


def _write(replies: TextIO, reply: LoaderReply) -> None:
    replies.write(reply.model_dump_json() + "\n")
    replies.flush()


if __name__ == "__main__":
    main(sys.stdin, sys.stdout)
