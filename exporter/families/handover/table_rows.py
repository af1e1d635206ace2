"""The number of rows of the table that each example input's ids are looked up in, found in the module."""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager

import torch
from torch import Tensor, nn

from exporter.families.handover.errors import ModuleUnusable
from exporter.families.handover.example import Example, ExampleInput
from exporter.families.handover.torchrec_classes import EmbeddingBagCollection, EmbeddingCollection
from exporter.redaction import name_first


def find_table_rows(
    module: nn.Module, example: Example, lookups: "Lookups", given: Mapping[str, int]
) -> dict[str, int]:
    """Return the rows of the table of every input of ids, by the input's name.

    What is `given` comes first; then the tables of torchrec by the names of their features; then the tables
    that were seen to be asked for exactly the values of one input.

    Raises:
        ModuleUnusable: for an input no table is known, or `given` names what is no input of ids, or has
            what is no number of them.
    """
    ids = {name: each for name, each in example.inputs.items() if each.is_whole and not each.is_lengths}
    for name, rows_given in given.items():
        if type(rows_given) is not int or rows_given < 1:
            raise ModuleUnusable(
                f"table_rows has {rows_given!r} for {name}, and no number of ids",
                hint="give a whole number from 1",
                where="table_rows",
            )
        if name in example.inputs and name not in ids:
            raise ModuleUnusable(
                f"table_rows names {name}, which is no input of ids; these are {name_first(ids) or 'none'}",
                where="table_rows",
            )
    by_feature = _rows_by_feature(module)
    found: dict[str, int] = {}
    for name, each in ids.items():
        rows = given.get(name) or by_feature.get(_feature_of(each)) or lookups.rows_of(each.tensor, ids)
        if rows is None:
            raise ModuleUnusable(
                f"{name} holds whole numbers, and the module was not seen to look them up in a table",
                hint=f"say how many there are: table_rows={{{name!r}: ...}}; numbers that are no ids come as "
                "float32",
                where=name,
            )
        if (largest := _largest(each.tensor)) >= rows:
            raise ModuleUnusable(
                f"the example has the id {largest} in {name}, whose table has {rows} rows", where=name
            )
        found[name] = rows
    return found


class Lookups:
    """Lookups in tables that a module was seen to do."""

    def __init__(self) -> None:
        self._seen: dict[int, list[Tensor]] = defaultdict(list)  # rows of a table -> ids that were asked for

    @contextmanager
    def watch(self, module: nn.Module) -> Iterator[None]:
        """Note the lookups of a module while it runs."""
        with ExitStack() as hooks:
            for each in module.modules():
                if isinstance(each, nn.Embedding | nn.EmbeddingBag):
                    hooks.enter_context(_removed(each.register_forward_pre_hook(self._note)))
            yield

    def _note(self, table: nn.Module, arguments: tuple[object, ...]) -> None:
        rows = getattr(table, "num_embeddings", None)
        if isinstance(rows, int) and arguments and isinstance(arguments[0], Tensor):
            self._seen[rows].append(arguments[0].detach().cpu().reshape(-1).long())

    def rows_of(self, ids: Tensor, inputs: Mapping[str, ExampleInput]) -> int | None:
        """Return the rows of the smallest table that was asked for these ids, and for no other input's."""
        wanted = ids.reshape(-1).long()
        if sum(torch.equal(each.tensor.reshape(-1).long(), wanted) for each in inputs.values()) != 1:
            return None
        asked = [rows for rows, seen in self._seen.items() if any(torch.equal(each, wanted) for each in seen)]
        return min(asked, default=None)


@contextmanager
def _removed(hook: torch.utils.hooks.RemovableHandle) -> Iterator[None]:
    try:
        yield
    finally:
        hook.remove()


def _largest(ids: Tensor) -> int:
    return int(ids.max()) if ids.numel() else 0


def _feature_of(given: ExampleInput) -> str:
    """Return the name by which torchrec's tables know the input."""
    return given.key or given.name.removesuffix(".values")


def _rows_by_feature(module: nn.Module) -> dict[str, int]:
    """Return the rows of the smallest table of each feature of torchrec's collections."""
    rows: dict[str, int] = {}
    for each in module.modules():
        if isinstance(each, EmbeddingBagCollection):
            configs = each.embedding_bag_configs()
        elif isinstance(each, EmbeddingCollection):
            configs = each.embedding_configs()
        else:
            continue
        for config in configs:
            for feature in config.feature_names:
                rows[feature] = min(config.num_embeddings, rows.get(feature, config.num_embeddings))
    return rows
