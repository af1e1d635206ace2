"""Lower the precision of a tower's tables and arithmetic on request, and keep an fp32 reference of it."""

import copy
from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from exporter.config.build_options import BuildOptions
from exporter.dtypes import Precision, TableDtype
from exporter.lowering.precision import InPrecision, allow_tf32, without_tf32
from exporter.lowering.tables import changes_tables, quantise_tables
from exporter.manifest import TableEntry
from exporter.models.embedding.tables import loses_precision
from exporter.towers.tower import Tower, settle_ties

# Default tolerances for differences of outputs from fp32, as fractions of an output's scale. They are sanity
# bounds, because the model decides how much of a table's error reaches an output. The recorded models reach
# at most two fifths of them.
_OF_TABLES = {
    TableDtype.FP16: 5e-3,
    TableDtype.INT8: 5e-2,
    TableDtype.INT4: 0.5,
}
_OF_ARITHMETIC = {Precision.FP32: 0.0, Precision.BF16: 4e-2, Precision.FP16: 5e-3}
_OF_TF32 = 5e-3


@dataclass(frozen=True, kw_only=True, eq=False)
class Fp32Reference:
    """The tower as trained, in fp32 on a device, with the tolerance for outputs of lower precision."""

    module: nn.Module
    device: torch.device
    tolerance: float  # fraction of an output's scale

    def __call__(self, inputs: dict[str, Tensor]) -> dict[str, Tensor]:
        """Return the outputs of the fp32 tower, on the CPU."""
        with torch.no_grad(), without_tf32():
            outputs = self.module({name: value.to(self.device) for name, value in inputs.items()})
        return {name: value.cpu() for name, value in outputs.items()}

    def settle_ties(
        self, inputs: Mapping[str, Tensor], expected: Mapping[str, Tensor], actual: Mapping[str, Tensor]
    ) -> dict[str, Tensor]:
        """Return the expected outputs with ties among ids decided as in `actual`, within the tolerance."""
        with torch.no_grad(), without_tf32():
            on_device = {name: value.to(self.device) for name, value in inputs.items()}
            return settle_ties(self.module, on_device, expected, actual, error=self.tolerance)


@dataclass(frozen=True, kw_only=True, eq=False)
class LoweredTower:
    """A tower on its device in the requested precision, its tables, and an fp32 reference if they differ."""

    tower: Tower
    tables: tuple[TableEntry, ...]
    fp32: Fp32Reference | None


def lower_tower(tower: Tower, device: torch.device, *, tolerance: float | None = None) -> LoweredTower:
    """Move a tower with its weights to `device`, in the precision that the request asks for.

    Unchanged weights are shared with the fp32 reference. If tables change, the reference stays on the
    CPU, because a GPU may have room for the quantised tables only.

    Raises:
        TableOutOfRange: a table has numbers that its dtype cannot hold.
    """
    options = tower.config.options
    reference, at = tower.module, device
    served = tower.served
    if changes_tables(served, options.tables):
        reference, at = _sharing(served), torch.device("cpu")
    tables = quantise_tables(served, options.tables)
    served.to(device)
    allow_tf32(allowed=options.tf32)
    if options.precision is not Precision.FP32:
        served = InPrecision(served, options.precision).eval()
    bound = tolerance or _bound(options, tables)
    return LoweredTower(
        tower=replace(tower, module=served),
        tables=tables,
        fp32=Fp32Reference(module=reference, device=at, tolerance=bound)
        if _is_low(options, tables)
        else None,
    )


def _is_low(options: BuildOptions, tables: tuple[TableEntry, ...]) -> bool:
    """Return whether any table or arithmetic of this tower is of lower precision."""
    return _bound(options, tables) > 0


def _bound(options: BuildOptions, tables: tuple[TableEntry, ...]) -> float:
    changed = (table.dtype for table in tables if loses_precision(table.trained, table.dtype))
    of_tables = max((_OF_TABLES[dtype] for dtype in changed), default=0.0)
    return of_tables + _OF_ARITHMETIC[options.precision] + (_OF_TF32 if options.tf32 else 0.0)


def _sharing(module: nn.Module) -> nn.Module:
    """Copy a module with tensor objects of its own over the same values, so that it can be moved alone."""
    tensors = {**dict(module.named_parameters()), **dict(module.named_buffers())}
    shared: dict[int, object] = {
        id(tensor): nn.Parameter(tensor.detach(), requires_grad=False)
        if isinstance(tensor, nn.Parameter)
        else tensor.detach()
        for tensor in tensors.values()
    }
    return copy.deepcopy(module, shared)
