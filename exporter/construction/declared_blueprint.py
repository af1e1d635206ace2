"""A tower that a custom family declares and builds; Slipway holds the module to the declaration."""

import hashlib
from collections.abc import Collection, Mapping
from dataclasses import replace

import torch
from torch import Tensor

from exporter.checkpoint.keymap import PREFIX
from exporter.checkpoint.load import load_weights
from exporter.checkpoint.read import Checkpoint
from exporter.construction.blueprint import Blueprint, FilledModule, TowerFiles
from exporter.declaration import TowerDeclaration
from exporter.dims.declared_dims import plan_declared
from exporter.dims.torch_dims import input_sizes
from exporter.errors import InvalidDeclaration, InvalidSpec
from exporter.families.family import Family, TwoStep
from exporter.families.loading import (
    code_digest,
    declare_towers,
    family_code,
    find_tower,
    is_own_family,
    load_family,
)
from exporter.families.serving_module import DeclaredModule
from exporter.redaction import name_first
from exporter.spec import ExportSpec, Mode, TowerName
from exporter.storage.places import Places
from exporter.towers.declared_view import declared_tower
from exporter.towers.plan import (
    PlannedTower,
    UnopenedTower,
    build_options,
    item_id_column,
    refuse_model_options,
    require_listed_family,
)
from exporter.towers.tower import Tower


def open_declared_blueprint(
    unopened: UnopenedTower, spec: ExportSpec, config_text: str
) -> "DeclaredBlueprint":
    """Load the family, and ask it for the tower.

    Raises:
        FamilyError: the family cannot be loaded, raised, or declares what cannot be.
        InvalidSpec: the family has no such tower, or does not say how to package it in two stages.
    """
    family = load_family(unopened.family)
    towers = declare_towers(family, unopened.family, config_text)
    planned = _plan_tower(
        find_tower(towers, unopened.name, unopened.family), unopened.family, spec, config_text
    )
    return DeclaredBlueprint(planned, family, towers, mode=spec.mode)


def plan_family(spec: ExportSpec, config_text: str, *, families: Collection[str]) -> tuple[PlannedTower, ...]:
    """Plan the towers of the family that the spec names, or those of them it asks for; loads the family.

    Raises:
        FamilyError: as `open_declared_blueprint`, or it is not among `families`.
        InvalidSpec: as `open_declared_blueprint`.
    """
    name = spec.family
    assert name is not None, "asked for a plan of TorchEasyRec's model"
    require_listed_family(name, families)
    refuse_model_options(spec)
    towers = declare_towers(load_family(name), name, config_text)
    wanted = spec.towers or tuple(tower.name for tower in towers)
    return tuple(_plan_tower(find_tower(towers, each, name), name, spec, config_text) for each in wanted)


def _plan_tower(
    declaration: TowerDeclaration, family: str, spec: ExportSpec, config_text: str
) -> PlannedTower:
    if spec.mode is Mode.TWO_STAGE and not declaration.embedded:
        raise InvalidSpec(
            f"family {family} declares no embedded tensors for its {declaration.name} tower, which two_stage "
            "needs",
            hint="export with mode unified, or declare `embedded` and build a module with lookup and compute",
            where="mode",
        )
    origin = hashlib.sha256(f"{code_digest(family)}\n{config_text}".encode()).hexdigest()
    tower = declared_tower(
        declaration, family=family, text=config_text, origin=origin, is_own=is_own_family(family)
    )
    tower = replace(tower, options=build_options(tower.pipeline, spec))
    return PlannedTower(
        config=tower,
        plan=plan_declared(declaration, max_batch_size=spec.max_batch_size),
        item_id_column=item_id_column(tower, spec),
    )


class DeclaredBlueprint(Blueprint):
    """A tower whose module and declaration come from an installed package."""

    def __init__(
        self, planned: PlannedTower, family: Family, towers: tuple[TowerDeclaration, ...], *, mode: Mode
    ) -> None:
        super().__init__(planned)
        self.family = family
        self._towers = towers
        self._mode = mode
        self._text = planned.config.pipeline.text
        self.declaration = find_tower(towers, planned.name, planned.family)

    def build(self) -> Tower:
        module = DeclaredModule(self._build_module(self.planned.name), self.declaration)
        if self._mode is Mode.TWO_STAGE and not isinstance(module.module, TwoStep):
            raise InvalidDeclaration(
                f"{self._title}: its module has no lookup and compute, though `embedded` is declared",
                hint="write the two steps, or leave `embedded` out and export with mode unified",
            )
        return Tower(config=self.planned.config, module=module.eval(), plan=self.planned.plan)

    def fill(self, tower: Tower, checkpoint: Checkpoint) -> FilledModule:
        """Load the weights; the checkpoint may also hold those of the family's other towers, and no more."""
        assert isinstance(tower.module, DeclaredModule)
        trained = self.family.trained_part(tower.module.module)
        found = checkpoint.tensors()
        known = {*trained.state_dict(), *self._weights_of_others()}
        prefix = "" if known & found.keys() else PREFIX
        beginnings = tuple(prefix + name for name in self.family.training_only)
        ignored = {name.removeprefix(prefix) for name in found if name.startswith(beginnings)}
        load_weights(trained, checkpoint, prefix=prefix, known=known | ignored)
        with family_code(self.planned.family, f"comparing the {self.planned.name} tower"), torch.no_grad():
            self.family.require_faithful(tower.module.module, self.planned.name)
        return FilledModule(module=trained, checkpoint=checkpoint, prefix=prefix)

    def try_out(self, tower: Tower, inputs: dict[str, Tensor]) -> None:
        """Run the module once, and hold its inputs and outputs against the declaration.

        Raises:
            InvalidDeclaration: it reads an input that is not declared, or returns no dict of tensors, or
                one whose first axis is no input's.
            FamilyFailed: its forward raised something else.
        """
        with family_code(self.planned.family, f"the {self.planned.name} tower's forward"), torch.no_grad():
            try:
                outputs = tower.module(inputs)
            except KeyError as error:
                if error.args[0] in inputs:
                    raise
                raise InvalidDeclaration(
                    f"the {self.planned.name} tower's module reads {error}, which is no declared input; "
                    f"declared are {name_first(inputs)}",
                    where=str(error.args[0]),
                ) from error
            sizes = input_sizes(tower.plan, inputs)
            self._check_outputs(outputs, set(sizes.values()))
            if self._mode is Mode.TWO_STAGE:
                embedded = tower.served.lookup(inputs)
                self._check_embedded(embedded, sizes)
                self._check_outputs(tower.served.compute(embedded), set(sizes.values()))

    def files(self, spec: ExportSpec, config_uri: str | None, places: Places) -> TowerFiles:
        """Return the config as it was given; the manifest carries the declaration."""
        return TowerFiles(contents={"pipeline.config": self._text.encode()})

    @property
    def _title(self) -> str:
        return f"family {self.planned.family}, {self.planned.name} tower"

    def _build_module(self, tower: TowerName) -> torch.nn.Module:
        with family_code(self.planned.family, f"building the {tower} tower"):
            module: object = self.family.build(self._text, tower)
            if not isinstance(module, torch.nn.Module):
                raise InvalidDeclaration(
                    f"build returned {type(module).__name__} for its {tower} tower, and no nn.Module"
                )
        return module

    def _weights_of_others(self) -> set[str]:
        """Return the names of all weights of the family's other towers."""
        others = (tower.name for tower in self._towers if tower.name is not self.planned.name)
        with torch.device("meta"):
            built = (self.family.trained_part(self._build_module(tower)) for tower in others)
            return {name for module in built for name in module.state_dict()}

    def _check_outputs(self, outputs: Mapping[str, object], sizes: set[int]) -> None:
        problems = [problem for name, value in outputs.items() if (problem := _problem(name, value, sizes))]
        if problems or not outputs:
            raise InvalidDeclaration(
                f"the {self.planned.name} tower's module returns {problems[0] if problems else 'nothing'}",
                hint="return a dict from names to tensors, one number or vector per row or per element",
            )

    def _check_embedded(self, embedded: Mapping[str, Tensor], sizes: Mapping[str, int]) -> None:
        for promised in self.declaration.embedded:
            tensor = embedded.get(promised.name)
            shape = tuple(sizes[axis] if isinstance(axis, str) else axis for axis in promised.shape)
            found = "nothing" if tensor is None else f"{tensor.dtype} {tuple(tensor.shape)}"
            if found != f"torch.{promised.dtype} {shape}":
                raise InvalidDeclaration(
                    f"the {self.planned.name} tower's lookup returns {found} for {promised.name}, which is "
                    f"declared {promised.dtype} {list(promised.shape)}",
                    where=promised.name,
                )


def _problem(name: object, value: object, sizes: set[int]) -> str:
    """Return what is wrong with an output, in words; empty if nothing is."""
    if not isinstance(name, str):
        return f"an output named by {type(name).__name__} {name!r}"
    if not isinstance(value, Tensor):
        return f"{type(value).__name__} as output {name}, and no tensor"
    if value.dim() == 0 or value.shape[0] not in sizes:
        return f"output {name} of shape {tuple(value.shape)}, which has neither the batch nor a dim in front"
    return ""
