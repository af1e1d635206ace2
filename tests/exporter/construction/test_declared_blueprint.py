"""A declared tower is built and filled, and must match its declaration."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from exporter.checkpoint.safetensors import SafetensorsCheckpoint
from exporter.construction.blueprint import TowerFiles
from exporter.construction.declared_blueprint import DeclaredBlueprint, open_declared_blueprint
from exporter.errors import CheckpointMismatch, FamilyFailed, InvalidDeclaration, InvalidSpec
from exporter.spec import Mode, TowerName
from exporter.storage.places import EVERYWHERE
from exporter.towers.plan import UnopenedTower
from tests.exporter.families.conftest import Weighted, WeightedFamily, blueprint_of, spec_of
from tests.installed_families import SOUND, Install

INPUTS = {"x": torch.ones(5, 2)}
WEIGHTS = {"scale.weight": torch.tensor([[2.0, 3.0]]), "scale.bias": torch.zeros(1)}

Open = Callable[..., DeclaredBlueprint]


@pytest.fixture
def opened(install: Install) -> Open:
    """The tower of a family whose module's forward returns `returns`."""

    def opened(returns: str = "", *, more: str = "", mode: Mode = Mode.UNIFIED) -> DeclaredBlueprint:
        source = SOUND.replace('{"score": self.scale(inputs["x"]).squeeze(1)}', returns) if returns else SOUND
        unopened = UnopenedTower(name=TowerName.MODEL, family=install("opened_family", source + more))
        return open_declared_blueprint(unopened, spec_of("opened_family", mode=mode), "anything")

    return opened


@pytest.mark.parametrize("prefix", ["", "model."])
def test_it_takes_the_checkpoints_weights(opened: Open, tmp_path: Path, prefix: str) -> None:
    save_file({prefix + name: value for name, value in WEIGHTS.items()}, tmp_path / "w.safetensors")
    blueprint = opened()
    tower = blueprint.build()
    blueprint.fill(tower, SafetensorsCheckpoint([tmp_path / "w.safetensors"]))
    assert tower.module(INPUTS)["score"].tolist() == [5.0] * 5


def test_weights_of_no_tower_are_refused_unless_only_training_uses_them(opened: Open, tmp_path: Path) -> None:
    save_file(WEIGHTS | {"head.weight": torch.ones(1)}, tmp_path / "w.safetensors")
    checkpoint = SafetensorsCheckpoint([tmp_path / "w.safetensors"])
    blueprint = opened()
    with pytest.raises(CheckpointMismatch, match=re.escape("head.weight")):
        blueprint.fill(blueprint.build(), checkpoint)
    blueprint.family.training_only = ("head.",)
    blueprint.fill(blueprint.build(), checkpoint)


@pytest.mark.parametrize(
    ("returns", "message"),
    [
        ('{"score": inputs["y"]}', "family opened_family: the model tower's module reads 'y'"),
        ('inputs["x"]', "module returns Tensor, not a dict"),
        ("{}", "module returns nothing"),
        ('{"score": [1.0]}', "module returns list as output score"),
        ('{"score": inputs["x"].sum()}', r"output score of shape \(\), which has neither the batch"),
        ('{"score": inputs["x"][:1]}', r"output score of shape \(1, 2\), which has neither the batch"),
    ],
)
def test_a_module_unlike_its_declaration_is_refused(opened: Open, returns: str, message: str) -> None:
    blueprint = opened(returns)
    with pytest.raises(InvalidDeclaration, match=message):
        blueprint.try_out(blueprint.build(), INPUTS)


def test_a_forward_that_raises_is_the_familys_failure(opened: Open) -> None:
    blueprint = opened('{"score": 1 / 0}')
    with pytest.raises(FamilyFailed, match="the model tower's forward raised ZeroDivisionError"):
        blueprint.try_out(blueprint.build(), INPUTS)


def test_its_config_goes_beside_the_package_unread(opened: Open) -> None:
    spec = spec_of("opened_family")
    assert opened().files(spec, "/configs/pipeline.config", EVERYWHERE) == TowerFiles(
        contents={"pipeline.config": b"anything"}
    )


def test_vectors_of_all_items_can_be_wanted_of_it(install: Install) -> None:
    item = SOUND.replace('name="x", dtype="float32", shape=("batch", 2)', 'name="i", **ID')
    item = item.replace("TowerDeclaration(", 'TowerDeclaration(name="item", ')
    name = install("item_family", item + '\nID = {"dtype": "int64", "shape": ("batch",), "table_rows": 9}')
    unopened = UnopenedTower(name=TowerName.ITEM, family=name)
    spec = spec_of(name, TowerName.ITEM)
    wanted = spec.model_copy(update={"materialise_items": True})
    assert open_declared_blueprint(unopened, wanted, "anything").planned.item_id_column == "i"
    assert open_declared_blueprint(unopened, spec, "anything").planned.item_id_column is None


def test_what_is_built_is_a_module(opened: Open) -> None:
    more = "    def build(self, config, tower):\n        return config"
    with pytest.raises(InvalidDeclaration, match="build returned str for its model tower"):
        opened(more=more).build()


def test_two_stages_need_a_declaration_of_what_is_between(opened: Open) -> None:
    with pytest.raises(InvalidSpec, match="declares no embedded tensors for its model tower") as raised:
        opened(mode=Mode.TWO_STAGE)
    assert raised.value.where == "mode"


@pytest.mark.parametrize("mode", Mode)
def test_demands_on_ids_and_lengths_are_checked_when_it_runs(mode: Mode) -> None:
    blueprint = blueprint_of(WeightedFamily(Weighted()), mode)
    tower = blueprint.build()
    inputs = {"ids": torch.tensor([1, 2, 3]), "weights": torch.ones(3, 1), "counts": torch.tensor([1, 2])}
    blueprint.try_out(tower, inputs)
    assert tower.module(inputs)["total"].tolist() == [1.0, 5.0]
    assert _unmet(tower.module, inputs | {"ids": torch.tensor([1, 2, 9])}) == "ids has an id outside"
    assert _unmet(tower.module, inputs | {"counts": torch.tensor([3, 2])}) == "counts has a negative length"


def _unmet(module: torch.nn.Module, inputs: dict[str, Tensor]) -> str:
    with pytest.raises(RuntimeError) as raised:
        module(inputs)
    [found] = re.findall(r"(ids has an id outside|counts has a negative length)", str(raised.value))
    return str(found)


class Wider(Weighted):
    """Looks up numbers of 64 bits where 32 are declared."""

    def lookup(self, inputs: dict[str, Tensor]) -> dict[str, Tensor]:
        embedded = super().lookup(inputs)
        return embedded | {"rows": embedded["rows"].double()}


def test_what_is_looked_up_is_held_to_the_declaration() -> None:
    blueprint = blueprint_of(WeightedFamily(Wider()), Mode.TWO_STAGE)
    inputs = {"ids": torch.tensor([1, 2, 3]), "weights": torch.ones(3, 1), "counts": torch.tensor([1, 2])}
    with pytest.raises(InvalidDeclaration, match=r"lookup returns torch.float64 \(3, 1\) for rows, which is"):
        blueprint.try_out(blueprint.build(), inputs)


def test_two_stages_need_a_module_of_two_steps() -> None:
    with pytest.raises(InvalidDeclaration, match="its module has no lookup and compute"):
        blueprint_of(WeightedFamily(torch.nn.Linear(1, 1)), Mode.TWO_STAGE).build()
