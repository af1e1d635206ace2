"""A module handed over is the same module on the other side: without its weights, with all else it has."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import torch
from torch import Tensor, nn

from exporter.checkpoint.load import load_weights
from exporter.checkpoint.read import open_checkpoint
from exporter.data.rows import read_rows
from exporter.dims.declared_dims import plan_declared
from exporter.families.handover.errors import ModuleUnusable
from exporter.families.handover.folder import WEIGHTS, declaration_text, request_fields, write_family
from exporter.families.handover.given_family import GivenFamily
from exporter.families.handover.module_file import read_module, write_module
from exporter.families.handover.module_plan import ModulePlan, plan_module
from exporter.families.handover.torchrec_classes import KeyedJaggedTensor
from exporter.families.own_code import GivenModule, GivenOrigin, find_own_family
from exporter.spec import TowerName
from exporter.towers.declared_view import declared_tower
from tests.exporter.families.test_module_plan import Bag, Dense, Pooled, bag, cities, jagged


@pytest.fixture(autouse=True)
def _path_stays() -> Iterator[None]:
    path = list(sys.path)
    yield
    sys.path[:] = path


class Scaled(nn.Module):
    """Weights that are one tensor, a number, and a buffer in no state dict."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(2, 2), nn.Linear(2, 2)
        self.second.weight = self.first.weight
        self.temperature = 0.05
        self.register_buffer("shift", torch.full((2,), 3.0), persistent=False)

    def forward(self, dense: Tensor) -> Tensor:
        shift = self.shift
        assert isinstance(shift, Tensor)
        scores: Tensor = self.second(self.first(dense))
        return (scores + shift) / self.temperature


DENSE = {"dense": torch.rand(4, 2)}


def handed_over(plan: ModulePlan, folder: Path) -> GivenFamily:
    write_family(plan, folder, with_answers=True)
    request_fields(plan, folder, checkpoint=None)
    return GivenFamily(folder)


@pytest.mark.parametrize(
    ("module", "example"), [(Scaled(), DENSE), (Pooled(), jagged()), (Dense(), cities()), (Bag(), bag())]
)
def test_it_computes_the_same_once_it_has_its_weights(
    module: nn.Module, example: object, tmp_path: Path
) -> None:
    family = handed_over(plan_module(module, example), tmp_path)
    built = family.build("", TowerName.MODEL).eval()
    part = family.trained_part(built)
    assert part.state_dict().keys() == module.state_dict().keys()
    assert all(tensor.is_meta for tensor in part.state_dict().values())
    load_weights(part, open_checkpoint(tmp_path / WEIGHTS), prefix="", known=module.state_dict())
    with torch.no_grad():
        family.require_faithful(built, TowerName.MODEL)


def test_other_weights_are_noticed(tmp_path: Path) -> None:
    family = handed_over(plan_module(Scaled(), DENSE), tmp_path)
    built = family.build("", TowerName.MODEL).eval()
    torch.save(Scaled().state_dict(), tmp_path / "other.pt")
    load_weights(family.trained_part(built), open_checkpoint(tmp_path / "other.pt"), prefix="")
    with pytest.raises(ModuleUnusable, match="gives another output for the example"), torch.no_grad():
        family.require_faithful(built, TowerName.MODEL)


class Ranked(nn.Module):
    """Scores that are minus infinity or no number where there is nothing to rank, and flags."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(2, 3)

    def forward(self, dense: Tensor) -> dict[str, Tensor]:
        first, second, third = self.layer(dense).unbind(1)
        scores = torch.stack([first.mul(0) - torch.inf, second, third.mul(0) / 0], dim=1)
        return {"scores": scores, "is_high": second > 0}


def test_what_is_not_finite_is_the_same_and_the_rest_is_compared(tmp_path: Path) -> None:
    module = Ranked()
    family = handed_over(plan_module(module, DENSE), tmp_path)
    built = family.build("", TowerName.MODEL).eval()
    load_weights(family.trained_part(built), open_checkpoint(tmp_path / WEIGHTS), prefix="")
    with torch.no_grad():
        family.require_faithful(built, TowerName.MODEL)
        for weight in built.parameters():
            weight.mul_(1.1)
    with pytest.raises(ModuleUnusable, match="gives another scores for the example"), torch.no_grad():
        family.require_faithful(built, TowerName.MODEL)


def test_towers_that_read_one_file_need_it_given(tmp_path: Path) -> None:
    plan = plan_module({"user": Pooled(), "model": Dense()}, {"user": jagged(), "model": cities()})
    with pytest.raises(ModuleUnusable, match="the model tower and another one both read sample_input_uri"):
        request_fields(plan, tmp_path, checkpoint=None)
    assert request_fields(plan, tmp_path, checkpoint=None, given=["sample_input_uri"])


def test_the_folder_is_a_family_of_the_modules_name(tmp_path: Path) -> None:
    handed_over(
        plan_module({"user": Pooled(), "item": Dense()}, {"user": jagged(), "item": cities()}), tmp_path
    )
    own = find_own_family(str(tmp_path))
    assert isinstance(own, GivenModule) and own.name == "Pooled_Dense"
    checkpoint = open_checkpoint(tmp_path / WEIGHTS)
    assert {name.partition(".")[0] for name in checkpoint.tensors()} == {"user", "item"}


NO_CLICKS = KeyedJaggedTensor(
    keys=["user", "clicks"], values=torch.tensor([1, 2, 3]), lengths=torch.tensor([1, 1, 1, 0] + 4 * [0])
)


@pytest.mark.parametrize(
    ("module", "example"),
    [(Pooled(), jagged()), (Bag(), bag()), (Dense(), cities()), (Pooled(), NO_CLICKS)],
)
def test_the_rows_written_are_the_example(module: nn.Module, example: object, tmp_path: Path) -> None:
    plan = plan_module(module, example)
    family = handed_over(plan, tmp_path)
    [declaration] = family.towers(declaration_text(plan))
    tower = declared_tower(declaration, family="x", text="")
    rows = read_rows(str(tmp_path / "model.parquet"), tower.pipeline.features)
    tensors = rows.tensors(plan_declared(declaration, max_batch_size=16))
    assert pq.read_table(tmp_path / "model.parquet").num_rows == len(rows) == 4
    assert tensors.keys() == plan.inputs().keys()
    assert all(torch.equal(tensors[name], tensor) for name, tensor in plan.inputs().items())


class Lambda(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.activations: list[Callable[[Tensor], Tensor]] = [lambda x: x]

    def forward(self, dense: Tensor) -> Tensor:
        return self.activations[0](dense)


def test_what_cannot_be_pickled_says_what_to_change(tmp_path: Path) -> None:
    with pytest.raises(ModuleUnusable, match="cannot be handed to the process that exports it") as refusal:
        write_family(plan_module(Lambda(), DENSE), tmp_path, with_answers=True)
    assert "lambdas" in refusal.value.hint


class Unpicklable(nn.Linear):
    def __reduce__(self) -> str:
        raise RuntimeError("no state for you")


def test_any_error_of_pickling_is_one_of_the_module(tmp_path: Path) -> None:
    module = Unpicklable(2, 2)
    with pytest.raises(ModuleUnusable, match="no state for you"):
        write_module(module, module, tmp_path / "x.module", GivenOrigin(name="x"))


def test_a_class_of_an_interactive_session_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    main = sys.modules["__main__"]
    cell = type("Cell", (nn.Linear,), {"__module__": "__main__"})
    monkeypatch.setattr(main, "Cell", cell, raising=False)
    module = cell(2, 2)
    with pytest.raises(ModuleUnusable, match="defined in an interactive session"):
        write_module(module, module, tmp_path / "x.module", GivenOrigin(name="x"))


def test_classes_of_a_script_are_found_in_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "from torch import nn\nclass InScript(nn.Linear): pass\nassert __name__ != '__main__'\n"
    )
    monkeypatch.setattr(sys.modules["__main__"], "InScript", cell := _in_main("InScript"), raising=False)
    module = cell(2, 2)
    write_module(module, module, tmp_path / "x.module", origin := GivenOrigin(name="x", main_file=script))
    read = read_module(tmp_path / "x.module", origin)
    assert type(read).__name__ == "InScript" and type(read).__module__ == "slipway_own_script"
    gone = GivenOrigin(name="x", main_file=script.with_name("other.py"))
    script.with_name("other.py").write_text("")
    with pytest.raises(ModuleUnusable, match="has no InScript when it is imported"):
        read_module(tmp_path / "x.module", gone)


def test_the_main_module_is_marked_as_running_while_it_is_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "started_by_name.py").write_text(
        "from torch import nn\nfrom exporter.families.own_module import file_being_run\n"
        "class InModule(nn.Linear): pass\nRUNNING = file_being_run()\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys.modules["__main__"], "InModule", cell := _in_main("InModule"), raising=False)
    module, origin = cell(2, 2), GivenOrigin(name="x", main_module="started_by_name")
    write_module(module, module, tmp_path / "x.module", origin)
    read_module(tmp_path / "x.module", origin)
    assert tmp_path / "started_by_name.py" == sys.modules["started_by_name"].RUNNING


def _in_main(name: str) -> type[nn.Linear]:
    return type(name, (nn.Linear,), {"__module__": "__main__"})
