"""A model with one table of any size: the recorded hstu_match with as many items as requested."""

import argparse
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor

from exporter.checkpoint.keymap import PREFIX
from exporter.config.parse import parse_pipeline_config
from exporter.models.registry import build_model
from exporter.spec import ExportSpec, TowerName

_RECORDED = Path(__file__).parents[2] / "tests" / "fixtures" / "torcheasyrec"
_ROW_BYTES = 64
_LARGE = 50e6  # weights above this many bytes are written in pieces
_PIECE = 4 << 20


def add_sizes_option(parser: argparse.ArgumentParser) -> None:
    """Add the option `--bytes`, which replaces a benchmark's own sizes."""
    parser.add_argument(
        "--bytes", type=float, action="append", dest="sizes", metavar="N", help="of the table; may repeat"
    )


def large_table_spec(folder: Path, table_bytes: int, *, real: bool) -> ExportSpec:
    """Return an export of the item tower with such a table; write config and checkpoint below `folder`.

    Without `real`, the table's file has a hole in the middle.
    """
    config = folder / "pipeline.config"
    text = (_RECORDED / "hstu_match" / "pipeline.config").read_text()
    config.write_text(text.replace("num_buckets: 2000\n", f"num_buckets: {table_bytes // _ROW_BYTES}\n"))
    return ExportSpec(
        config_uri=config.as_uri(),
        checkpoint_uri=str(_write_checkpoint(folder / "checkpoint", config.read_text(), real=real)),
        item_input_uri=str(_RECORDED / "data" / "items.parquet"),
        output_uri=str(folder / "out"),
        towers=(TowerName.ITEM,),
        ranks=1,
    )


def _write_checkpoint(folder: Path, config: str, *, real: bool) -> Path:
    """Write the weights of a newly initialised model; the large table is written in pieces."""
    with torch.device("meta"):
        whole = build_model(parse_pipeline_config(config)).state_dict()
    weights = {f"{PREFIX}{name}": tensor for name, tensor in whole.items()}
    folder.mkdir()
    small = {name: _draw_like(tensor) for name, tensor in weights.items() if tensor.nbytes < _LARGE}
    save_file(small, folder / "small.safetensors")
    for number, name in enumerate(sorted(weights.keys() - small.keys())):
        _write_large(folder / f"large-{number}.safetensors", name, weights[name], real=real)
    return folder


def _draw_like(tensor: Tensor) -> Tensor:
    values = torch.rand(tensor.shape)
    return (
        values.to(tensor.dtype) if tensor.is_floating_point() else torch.ones(tensor.shape).to(tensor.dtype)
    )


def _write_large(path: Path, name: str, tensor: Tensor, *, real: bool) -> None:
    """Write a table of random numbers piece by piece; without `real`, with a hole in the middle."""
    entry = f'{{"{name}":{{"dtype":"F32","shape":{list(tensor.shape)},"data_offsets":[0,{tensor.nbytes}]}}}}'
    text = entry.encode()
    text += b" " * (-(len(text) + 8) % 64)
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        pieces = range(0, tensor.nbytes, _PIECE) if real else (0, tensor.nbytes - _PIECE)
        for start in pieces:
            file.seek(8 + len(text) + start)
            file.write(torch.rand(min(_PIECE, tensor.nbytes - start) // 4).numpy().data)
