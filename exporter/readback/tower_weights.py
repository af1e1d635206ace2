"""The tensors of the checkpoint that the weights of a tower's packages are held against."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor, nn

from exporter.aoti.constants import Constant
from exporter.checkpoint.dynamic_tables import CheckpointWithDynamicTables
from exporter.checkpoint.keymap import ID_MAP_IDS, ID_MAP_ROWS
from exporter.checkpoint.tensors import TensorMeta
from exporter.construction.blueprint import FilledModule
from exporter.dtypes import TableDtype
from exporter.manifest import TableEntry
from exporter.models.embedding.id_map import id_maps
from exporter.models.embedding.tables import loses_precision
from exporter.readback.errors import WeightsDiffer
from exporter.readback.expected import Expected, Held, Remade, Stored, cast_to, quantise_to
from exporter.readback.id_maps import MergedMap, SortedKeys


@dataclass(frozen=True, kw_only=True, eq=False)
class TowerWeights:
    """The checkpoint that a tower was filled from, and how its tables are kept."""

    filled: FilledModule
    tables: Sequence[TableEntry] = ()

    def prefix_in(self, module: nn.Module) -> str:
        """Return what `module`, the tower's or a part's, has before the names of the filled module."""
        for name, child in module.named_modules():
            if child is self.filled.module:
                return f"{name}." if name else ""
        raise AssertionError("the parts of a tower contain the module that was filled")

    def expect(self, constant: Constant, prefix: str, *, edited: bool) -> Expected:
        """Return what a constant of a package, and others that are made of the same rows, must be.

        Its name is that of a tensor of the filled module behind `prefix`. A tensor is the checkpoint's, as it
        is stored there; or made anew from it, if it is a quantised or widened table, or a map of ids. In an
        `edited` program a weight may have another floating-point dtype.

        Raises:
            WeightsDiffer: the checkpoint has no such tensor, or one of another dtype.
        """
        name = constant.fqn.removeprefix(prefix)
        owner, _, leaf = name.rpartition(".")
        if owner in self._maps and leaf in {ID_MAP_IDS, ID_MAP_ROWS}:
            return self.expect_map(owner, prefix)
        table = self._tables.get(owner)
        if table is not None and loses_precision(table.trained, table.dtype):
            leaves = ("weight",) if table.dtype is TableDtype.FP16 else ("codes", "scale_offset")
            return self.expect_rows(
                f"{owner}.weight", table.dtype, {each: f"{prefix}{owner}.{each}" for each in leaves}
            )
        meta = self._meta(name)
        pieces = self.filled.checkpoint.pieces(self._name_in_checkpoint(name)) if meta.nbytes else ()
        if meta.dtype == constant.dtype:
            return Stored(constant.fqn, pieces)
        is_widened = table is not None and table.dtype is TableDtype.FP32
        if not (edited or is_widened) or not constant.dtype.is_floating_point:
            raise WeightsDiffer(
                f"{constant.fqn} is {constant.dtype}, and the checkpoint's is {meta.dtype}",
                where=constant.fqn,
            )
        return Remade((constant.fqn,), pieces, meta, cast_to(constant.fqn, constant.dtype))

    def expect_rows(self, weight: str, dtype: TableDtype, names: Mapping[str, str]) -> Expected:
        """Return the rows of a table, quantised anew; `names` as `quantise_to` takes them."""
        meta = self._meta(weight)
        pieces = self.filled.checkpoint.pieces(self._name_in_checkpoint(weight))
        return Remade(tuple(names.values()), pieces, meta, quantise_to(dtype, names, meta.shape[1]))

    def expect_table(self, weight: str, dtype: TableDtype, trained: TableDtype) -> Expected:
        """Return the rows of a table as a rank's file has them: as stored, widened, or fused."""
        if loses_precision(trained, dtype):
            leaf = "weight" if dtype is TableDtype.FP16 else "fused"
            return self.expect_rows(weight, dtype, {leaf: weight})
        meta = self._meta(weight)
        pieces = self.filled.checkpoint.pieces(self._name_in_checkpoint(weight))
        if dtype is trained:
            return Stored(weight, pieces)
        return Remade((weight,), pieces, meta, cast_to(weight, torch.float32))

    def expect_map(self, owner: str, prefix: str = "") -> Expected:
        """Return the map of ids at a path of the filled module: what ranks wrote, merged or sorted anew."""
        names = (f"{prefix}{owner}.{ID_MAP_IDS}", f"{prefix}{owner}.{ID_MAP_ROWS}")
        ids, rows = (self._name_in_checkpoint(f"{owner}.{leaf}") for leaf in (ID_MAP_IDS, ID_MAP_ROWS))
        checkpoint = self.filled.checkpoint
        if isinstance(checkpoint, CheckpointWithDynamicTables):
            keys = checkpoint.keys_of_map(ids)
            if keys is not None:
                return SortedKeys(names, keys)
        return MergedMap(names, checkpoint.pieces(ids), checkpoint.pieces(rows))

    @cached_property
    def _tables(self) -> dict[str, TableEntry]:
        return {table.path: table for table in self.tables}

    @cached_property
    def _maps(self) -> frozenset[str]:
        return frozenset(path for path, _ in id_maps(self.filled.module))

    @cached_property
    def _metas(self) -> Mapping[str, TensorMeta]:
        return self.filled.checkpoint.tensors()

    def _name_in_checkpoint(self, name: str) -> str:
        return self.filled.prefix + name

    def _meta(self, name: str) -> TensorMeta:
        stored = self._name_in_checkpoint(name)
        if stored not in self._metas:
            raise WeightsDiffer(f"the package has {name}, and the checkpoint has no {stored}", where=name)
        return self._metas[stored]


def expect_own(constant: Constant, weights: Mapping[str, Tensor], reference: str) -> Expected:
    """Return a tensor held in memory as what a constant must be.

    Raises:
        WeightsDiffer: there is no such tensor.
    """
    if constant.fqn not in weights:
        raise WeightsDiffer(f"the package has {constant.fqn}, and {reference} has not", where=constant.fqn)
    return Held(constant.fqn, weights[constant.fqn], reference)


def find_altered_constant(values: Mapping[str, Tensor], constants: Mapping[str, Tensor]) -> str:
    """Return the name of a constant of compiled code that is not the traced program's; "" if there is none.

    A constant that the compiler renamed is looked for among all of the program's by its values. If the
    program has none of its shape and dtype, the compiler made it, and there is nothing to hold it against.
    """
    for name, value in values.items():
        alike = [
            each
            for other, each in constants.items()
            if (each.shape, each.dtype) == (value.shape, value.dtype)
            and (other == name or name not in constants)
        ]
        if alike and not any(_same_bytes(value, each) for each in alike):
            return name
    return ""


def _same_bytes(one: Tensor, other: Tensor) -> bool:
    one, other = (each.detach().cpu().contiguous().reshape(-1).view(torch.uint8) for each in (one, other))
    return torch.equal(one, other)
