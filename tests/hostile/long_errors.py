"""Input with thousands of mistakes, or with one of megabytes: the error that names them stays short."""

import json
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import nn

from exporter.checkpoint.load import load_weights
from exporter.checkpoint.read import open_checkpoint
from tests.hostile.configs import CONFIG, config_of, planned
from tests.hostile.kinds import hostile
from tests.hostile.requests import BODY, posted
from tests.service.requests import export_request

NAMES = "safetensors names"


def posted_with(**fields: object) -> object:
    return posted(json.dumps({**export_request(), **fields}))


def load(folder: Path, tensors: Mapping[str, torch.Tensor]) -> object:
    """Load the weights of a small model from these tensors."""
    save_file(dict(tensors), folder / "x.safetensors")
    load_weights(nn.Linear(2, 2), open_checkpoint(folder / "x.safetensors"), known=["weight", "bias"])
    return folder


@hostile("a body with 400,000 unknown fields", reader=BODY)
def _(folder: Path) -> object:
    return posted_with(**{f"f{number}": 1 for number in range(400_000)})


@hostile("a field whose name has 4,000,000 characters", reader=BODY)
def _(folder: Path) -> object:
    return posted_with(**{"x" * 4_000_000: 1})


@hostile("4,000 towers that no model has", reader=BODY)
def _(folder: Path) -> object:
    return posted_with(towers=["x" * 500] * 4000)


@hostile("100,000 labels with names that are not allowed", reader=BODY)
def _(folder: Path) -> object:
    return posted_with(labels={f" {number}": number for number in range(100_000)})


@hostile("10,000 features that lack their required fields", reader=CONFIG)
def _(folder: Path) -> object:
    return planned("feature_configs { id_feature {} }\n" * 10_000 + config_of("mind"), folder)


@hostile("a word of a megabyte", reader=CONFIG)
def _(folder: Path) -> object:
    return planned("x" * 1_000_000, folder)


@hostile("20,000 tensors that the model does not have", reader=NAMES)
def _(folder: Path) -> object:
    return load(folder, {f"model.extra.{number}": torch.ones(1) for number in range(20_000)})


@hostile("200,000 tensors of a byte each", reader=NAMES)
def _(folder: Path) -> object:
    count, path = 200_000, folder / "x.safetensors"
    one = '"%d":{"dtype":"U8","shape":[1],"data_offsets":[%d,%d]}'
    header = f"{{{','.join(one % (at, at, at + 1) for at in range(count))}}}".encode()
    path.write_bytes(len(header).to_bytes(8, "little") + header + bytes(count))
    return open_checkpoint(path)


@hostile("a tensor whose name has 2,000,000 characters", reader=NAMES)
def _(folder: Path) -> object:
    return load(folder, {"x" * 2_000_000: torch.ones(1)})
