"""The plan of a module's export: its towers, their inputs and dims, as an example proposes them."""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from exporter.declaration import ROWS, DimDeclaration, TowerDeclaration
from exporter.errors import ExportError, InvalidDeclaration
from exporter.families.handover.errors import ModuleUnusable
from exporter.families.handover.example import Example, read_example
from exporter.families.handover.given_tower import GivenTower
from exporter.families.handover.proposal import (
    Correction,
    GivenCorrection,
    propose_rows,
    propose_tower,
    read_corrections,
    require_known,
)
from exporter.families.handover.table_rows import Lookups, find_table_rows
from exporter.redaction import name_first
from exporter.spec import ExportOptions, TowerName

_BATCH: int = ExportOptions.model_fields["max_batch_size"].default
_MOST_ROWS = 65_536
_LONGEST_NAME = 64


@dataclass(frozen=True, kw_only=True, eq=False)
class GivenPlan:
    """One tower: its declaration, and the module with its example and its answers to it."""

    declaration: TowerDeclaration
    example: Example
    tower: GivenTower
    outputs: Mapping[str, Tensor]

    def describe(self, max_batch_size: int) -> Iterator[str]:
        """Yield the lines that show the tower: its dims, its inputs, its outputs."""
        yield f"{self.declaration.name} tower"
        yield f"  dim {ROWS}: 1 to {max_batch_size} rows per call"
        yield from (f"  dim {dim.name}: {_bounds(dim)}, {dim.reason}" for dim in self.declaration.dims)
        for each in self.declaration.inputs:
            ids = f", ids below {each.table_rows}" if each.table_rows else ""
            counted = f", counted by {each.lengths}" if each.lengths else ""
            yield f"  input {each.name}: {each.dtype} [{', '.join(map(str, each.shape))}]{ids}{counted}"
        for name, output in self.outputs.items():
            yield f"  output {name}: {list(output.shape)} in the example"


@dataclass(frozen=True, kw_only=True, eq=False)
class ModulePlan:
    """The plan of an export of modules: print it, and correct it by the arguments of the call."""

    family: str
    towers: Mapping[TowerName, GivenPlan]
    max_batch_size: int
    trained: nn.Module = field(repr=False)  # its state dict has the checkpoint's names

    @property
    def dims(self) -> dict[str, DimDeclaration]:
        """The dims beside the batch, by name."""
        return {dim.name: dim for each in self.towers.values() for dim in each.declaration.dims}

    def inputs(self, tower: str = "") -> dict[str, Tensor]:
        """Return the example as a tower's package takes it: plain tensors by name.

        Args:
            tower: its name. Default: the plan's first.

        Raises:
            ValueError: no tower can have this name.
            KeyError: the plan has no such tower.
        """
        name = TowerName(tower) if tower else next(iter(self.towers))
        return self.towers[name].example.tensors()

    def __str__(self) -> str:
        """Return the plan as text."""
        return "\n".join(line for each in self.towers.values() for line in each.describe(self.max_batch_size))


def plan_module(
    module: object,
    example_inputs: object,
    *,
    tower: str = "model",
    dims: Mapping[str, GivenCorrection] | None = None,
    table_rows: Mapping[str, int] | None = None,
    lengths: Mapping[str, str] | None = None,
) -> ModulePlan:
    """Propose how a module is exported, from example inputs: `slipway.plan`, which has these arguments.

    Raises:
        ModuleUnusable: the module or the example cannot be exported.
        InvalidDeclaration: a correction names what is not there, or contradicts itself or the example.
    """
    modules = _require_modules(module, tower)
    examples = (
        _require_examples(example_inputs, modules)
        if isinstance(module, Mapping)
        else dict.fromkeys(modules, example_inputs)
    )
    corrections = read_corrections(dims or {})
    paths = {name: str(name) if isinstance(module, Mapping) else "" for name in modules}
    towers: dict[TowerName, GivenPlan] = {}
    for name, each in modules.items():
        example = read_example(each, examples[name], lengths or {})
        towers[name] = _plan_tower(name, each, paths[name], example, table_rows or {}, corrections)
    _require_inputs("lengths", [*(lengths or {}), *(lengths or {}).values()], towers)
    _require_inputs("table_rows", [*(table_rows or {})], towers)
    require_known(corrections, [each.declaration for each in towers.values()])
    trained = nn.ModuleDict({str(name): each for name, each in modules.items()})
    return ModulePlan(
        family=_family_name([type(each).__name__ for each in modules.values()]),
        towers=towers,
        max_batch_size=_require_batch(propose_rows(corrections, otherwise=_BATCH)),
        trained=trained if isinstance(module, Mapping) else next(iter(modules.values())),
    )


def _plan_tower(
    name: TowerName,
    module: nn.Module,
    path: str,
    example: Example,
    table_rows: Mapping[str, int],
    corrections: Mapping[str, Correction],
) -> GivenPlan:
    lookups = Lookups()
    tower = GivenTower(module, path, example.call)
    with _serving(tower), lookups.watch(module), torch.no_grad():
        outputs = _run_once(tower, example)
    rows = find_table_rows(module, example, lookups, table_rows)
    return GivenPlan(
        declaration=propose_tower(name, example, rows, corrections),
        example=example,
        tower=tower,
        outputs=outputs,
    )


def _run_once(tower: GivenTower, example: Example) -> dict[str, Tensor]:
    """Return the module's answers to the example, on the CPU."""
    weights = [*tower.parameters(), *tower.buffers()]
    device = weights[0].device if weights else torch.device("cpu")
    if device.type == "meta":
        raise ModuleUnusable(
            "the module is on the meta device, and cannot run on its example",
            hint="build it on the CPU; with checkpoint=... its own weights are not read",
            where="module",
        )
    try:
        outputs = tower({name: each.to(device) for name, each in example.tensors().items()})
    except ExportError:
        raise
    except Exception as error:
        raise ModuleUnusable(
            f"the module raised {type(error).__name__} for the example, called as {example.call}: {error}",
            hint="give example inputs that the module computes",
            where="example_inputs",
        ) from error
    return {name: each.detach().cpu().contiguous() for name, each in outputs.items()}


@contextmanager
def _serving(module: nn.Module) -> Iterator[None]:
    """Put a module into the mode of serving, as it is exported, and put it back."""
    modes = [(each, each.training) for each in module.modules()]
    module.eval()
    try:
        yield
    finally:
        for each, training in modes:
            each.training = training


def _require_modules(module: object, tower: str) -> dict[TowerName, nn.Module]:
    given = module if isinstance(module, Mapping) else {tower: module}
    if isinstance(module, Mapping) and module and all(isinstance(each, Tensor) for each in module.values()):
        raise ModuleUnusable(
            "a state dict was given, and no nn.Module",
            hint="give the module itself, filled with these weights or beside checkpoint=...",
            where="module",
        )
    modules: dict[TowerName, nn.Module] = {}
    for name, each in given.items():
        if name not in [known.value for known in TowerName]:
            raise ModuleUnusable(
                f"{name!r} is no tower; towers are {', '.join(TowerName)}",
                hint="give one module, or a dict with a module for each tower",
                where="module",
            )
        if not isinstance(each, nn.Module):
            what = f"the class {each.__name__}" if isinstance(each, type) else type(each).__name__
            raise ModuleUnusable(
                f"{what} was given for the {name} tower, and no nn.Module",
                hint="give the trained module itself, not its class, state dict or file",
                where="module",
            )
        modules[TowerName(name)] = each
    if not modules:
        raise ModuleUnusable("no module was given", hint="give one for each tower", where="module")
    return modules


def _require_examples(given: object, modules: Mapping[TowerName, nn.Module]) -> dict[TowerName, object]:
    names = [str(name) for name in modules]
    if not isinstance(given, Mapping) or {str(name) for name in given} != set(names):
        found = (
            name_first([str(name) for name in given]) if isinstance(given, Mapping) else type(given).__name__
        )
        raise ModuleUnusable(
            f"the example inputs are {found}, and the towers are {name_first(names)}",
            hint="give a dict with the example inputs of each tower by its name",
            where="example_inputs",
        )
    return {TowerName(name): example for name, example in given.items()}


def _require_inputs(argument: str, names: list[str], towers: Mapping[TowerName, GivenPlan]) -> None:
    """Raise ModuleUnusable if an argument of the call names an input that no tower has."""
    inputs = [name for each in towers.values() for name in each.example.inputs]
    for name in names:
        if name not in inputs:
            raise ModuleUnusable(
                f"{argument} names {name}, which is no input; inputs are {name_first(inputs)}", where=argument
            )


def _require_batch(rows: int) -> int:
    if not 2 <= rows <= _MOST_ROWS:
        raise InvalidDeclaration(
            f"dims: {ROWS} ends at {rows}, and the largest batch has 2 to {_MOST_ROWS:,} rows",
            hint=f"correct its largest size: dims={{{ROWS!r}: (1, 512)}}",
            where=ROWS,
        )
    return rows


def _family_name(classes: list[str]) -> str:
    """Return a name for the manifest, of the classes of the modules."""
    name = re.sub(r"[^A-Za-z0-9]+", "_", "_".join(dict.fromkeys(classes))).strip("_")
    return name[:_LONGEST_NAME] or "module"


def _bounds(dim: DimDeclaration) -> str:
    if dim.high_per_row is not None:
        return f"{dim.low} to {dim.high_per_row} for each row"
    return f"{dim.low} and more" if dim.high is None else f"{dim.low} to {dim.high}"
