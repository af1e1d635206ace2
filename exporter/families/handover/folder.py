"""Write a planned module into a folder, as the family, the weights and the rows of an export."""

import json
import math
from collections.abc import Collection, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from exporter.checkpoint.safetensors import write_safetensors
from exporter.checkpoint.tensors import TensorMeta
from exporter.families.handover.errors import ModuleUnusable
from exporter.families.handover.example import Example, ExampleInput
from exporter.families.handover.given_family import EXAMPLE_FILE, INPUT, OUTPUT
from exporter.families.handover.module_file import find_origin, write_module
from exporter.families.handover.module_plan import ModulePlan
from exporter.families.own_code import MODULE_FILE, ORIGIN_NAME

WEIGHTS = "weights.safetensors"


def write_family(plan: ModulePlan, folder: Path, *, with_answers: bool) -> None:
    """Write the modules of all towers, their example inputs and, if these are to be compared, their answers.

    Raises:
        ModuleUnusable: a module cannot be handed to another process.
    """
    origin = find_origin(plan.family)
    (folder / ORIGIN_NAME).write_text(origin.model_dump_json())
    for name, each in plan.towers.items():
        write_module(each.tower, each.tower.model, folder / f"{name}{MODULE_FILE}", origin)
        example = {f"{INPUT}{key}": tensor.contiguous() for key, tensor in each.example.tensors().items()}
        if with_answers:
            example |= {f"{OUTPUT}{key}": tensor for key, tensor in each.outputs.items()}
        copies = {key: tensor.clone() for key, tensor in example.items()}  # as none may share storage
        save_file(copies, folder / f"{name}{EXAMPLE_FILE}")


def declaration_text(plan: ModulePlan) -> str:
    """Return the declaration of all towers, the family's config."""
    towers = [
        each.declaration.model_dump(mode="json", exclude_defaults=True) for each in plan.towers.values()
    ]
    names = [{"name": str(name)} for name in plan.towers]
    return json.dumps(
        {"towers": [{**name, **tower} for name, tower in zip(names, towers, strict=True)]}, indent=1
    )


def write_weights(module: nn.Module, path: Path) -> None:
    """Write a module's state dict.

    Raises:
        ModuleUnusable: it holds more than dense tensors.
    """
    weights = module.state_dict()
    for name, each in weights.items():
        if not isinstance(each, Tensor) or each.layout is not torch.strided or each.is_meta:
            what = (
                f"a {each.layout} tensor on {each.device}"
                if isinstance(each, Tensor)
                else type(each).__name__
            )
            raise ModuleUnusable(
                f"{name} in the module's state dict is {what}, and no dense tensor",
                hint="export a module whose weights are whole, on one device, or name a checkpoint of it",
                where=name,
            )
    metas = {name: TensorMeta(shape=tuple(each.shape), dtype=each.dtype) for name, each in weights.items()}
    write_safetensors(path, metas, (each.detach().cpu() for each in weights.values()))


def write_rows(example: Example, path: Path) -> None:
    """Write the example as rows: a column per input, with lists for inputs of several values per row."""
    columns = dict(_columns(example))
    pq.write_table(pa.table(columns), path)


def _columns(example: Example) -> Iterator[tuple[str, pa.Array]]:
    for each in example.inputs.values():
        if not each.is_lengths:
            lengths = example.inputs[each.lengths].tensor if each.lengths else None
            yield each.column, _column(each, lengths)


def _column(given: ExampleInput, lengths: Tensor | None) -> pa.Array:
    """Return the values of one input, by row."""
    size, width = given.tensor.shape[0], math.prod(given.tensor.shape[1:])
    array = pa.array(given.tensor.reshape(-1).numpy())
    if given.tensor.dim() > 1:
        array = pa.ListArray.from_arrays(_offsets(torch.full((size,), width)), array)
    return array if lengths is None else pa.ListArray.from_arrays(_offsets(lengths), array)


def _offsets(lengths: Tensor) -> pa.Array:
    ends = lengths.long().cumsum(0)
    return pa.array(torch.cat([ends.new_zeros(1), ends]).to(torch.int32).numpy())


def request_fields(
    plan: ModulePlan, folder: Path, *, checkpoint: str | None, given: Collection[str] = ()
) -> dict[str, object]:
    """Write the weights, unless there is a `checkpoint`, and the rows of fields that are not `given`.

    Returns the fields of a request that name them, the family's config and its towers.

    Raises:
        ModuleUnusable: the rows of two towers would be one file's, or the weights cannot be written.
    """
    if checkpoint is None:
        write_weights(plan.trained, folder / WEIGHTS)
    rows: dict[str, object] = {}
    for name, each in plan.towers.items():
        field = "item_input_uri" if name.reads_items else "sample_input_uri"
        if field in rows:
            raise ModuleUnusable(
                f"the {name} tower and another one both read {field}",
                hint="export them one by one, or give one file with both towers' columns: "
                f"{field.removesuffix('_uri')}=...",
                where=str(name),
            )
        if field not in given:
            path = folder / f"{name}.parquet"
            write_rows(each.example, path)
            rows[field] = str(path)
    return {
        "config": declaration_text(plan),
        "checkpoint_uri": checkpoint or str(folder / WEIGHTS),
        "towers": [str(name) for name in plan.towers],
        "max_batch_size": plan.max_batch_size,
        **rows,
    }
