"""The plan that an example proposes: names, dims, tables; corrections; and what is refused, in one error."""

from collections import namedtuple
from collections.abc import Callable, Mapping

import pytest
import torch
from torch import Tensor, nn

from exporter.errors import ExportError, InvalidDeclaration
from exporter.families.handover.errors import ModuleUnusable
from exporter.families.handover.module_plan import ModulePlan, plan_module
from exporter.families.handover.torchrec_classes import (
    EmbeddingBagCollection,
    EmbeddingBagConfig,
    KeyedJaggedTensor,
    KeyedTensor,
)
from exporter.spec import TowerName

ROWS = 4


class Pooled(nn.Module):
    """torchrec's pooled embeddings of two features."""

    def __init__(self) -> None:
        super().__init__()
        sizes = {"user": 50, "clicks": 30}
        self.tables = EmbeddingBagCollection(
            tables=[
                EmbeddingBagConfig(name=f"t_{key}", feature_names=[key], num_embeddings=rows, embedding_dim=4)
                for key, rows in sizes.items()
            ]
        )

    def forward(self, features: KeyedJaggedTensor) -> KeyedTensor:
        return self.tables(features)


class Dense(nn.Module):
    """A dict of tensors, by keywords."""

    def __init__(self) -> None:
        super().__init__()
        self.city = nn.Embedding(7, 2)
        self.layer = nn.Linear(5, 1)

    def forward(self, city: Tensor, dense: Tensor) -> Tensor:
        scores: Tensor = self.layer(torch.cat([self.city(city), dense], dim=1))
        return scores.squeeze(1)


class Bag(nn.Module):
    """One dict, with the lengths of plain ids in it."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.EmbeddingBag(9, 2, mode="sum", include_last_offset=True)

    def forward(self, inputs: dict[str, Tensor]) -> dict[str, Tensor]:
        lengths = inputs["hist_len"]
        ends = torch.cat([lengths.new_zeros(1), lengths.cumsum(0)])
        return {"sum": self.table(inputs["hist_ids"], ends) + inputs["dense"]}


def jagged(weights: Tensor | None = None) -> KeyedJaggedTensor:
    return KeyedJaggedTensor(
        keys=["user", "clicks"],
        values=torch.tensor([1, 2, 3, 4, 5, 6, 7, 8, 9]),
        lengths=torch.tensor([1, 1, 1, 1, 2, 0, 3, 0]),
        weights=weights,
    )


def bag() -> dict[str, Tensor]:
    return {
        "hist_ids": torch.tensor([1, 2, 3, 4, 5, 6]),
        "hist_len": torch.tensor([1, 2, 0, 3]),
        "dense": torch.ones(4, 2),
    }


def cities() -> dict[str, Tensor]:
    return {"city": torch.tensor([1, 2, 3, 4]), "dense": torch.randn(4, 3)}


def shapes(plan: ModulePlan, tower: TowerName = TowerName.MODEL) -> dict[str, tuple[int | str, ...]]:
    return {each.name: each.shape for each in plan.towers[tower].declaration.inputs}


def test_the_keys_of_a_keyed_jagged_tensor_are_inputs_with_dims_of_their_own() -> None:
    plan = plan_module(Pooled(), jagged())
    assert shapes(plan) == {
        "user.values": ("user",),
        "user.lengths": ("batch",),
        "clicks.values": ("clicks",),
        "clicks.lengths": ("batch",),
    }
    [user, _, clicks, _] = plan.towers[TowerName.MODEL].declaration.inputs
    assert (user.table_rows, user.lengths, user.source_column) == (50, "user.lengths", "user")
    assert (clicks.table_rows, clicks.lengths) == (30, "clicks.lengths")
    assert torch.equal(plan.inputs()["clicks.values"], torch.tensor([5, 6, 7, 8, 9]))
    assert plan.family == "Pooled"


def test_outputs_have_names() -> None:
    assert plan_module(Pooled(), jagged()).towers[TowerName.MODEL].outputs.keys() == {"user", "clicks"}
    assert plan_module(Dense(), cities()).towers[TowerName.MODEL].outputs.keys() == {"output"}


def test_the_tower_computes_what_the_module_computes() -> None:
    module, example = Pooled().eval(), jagged()
    given = plan_module(module, example).towers[TowerName.MODEL]
    expected = module(example).to_dict()
    assert all(torch.equal(output, expected[name]) for name, output in given.outputs.items())


def test_weights_share_the_dim_of_their_ids() -> None:
    class Weighted(Pooled):
        def __init__(self) -> None:
            super().__init__()
            self.tables = EmbeddingBagCollection(tables=self.tables.embedding_bag_configs(), is_weighted=True)

    plan = plan_module(Weighted(), jagged(torch.rand(9)))
    assert shapes(plan)["clicks.weights"] == ("clicks",)


def test_a_dict_by_keywords_and_a_table_that_was_looked_up_in() -> None:
    plan = plan_module(Dense(), cities())
    assert shapes(plan) == {"city": ("batch",), "dense": ("batch", 3)}
    assert plan.towers[TowerName.MODEL].declaration.inputs[0].table_rows == 7


def test_plain_ids_are_counted_by_the_input_whose_name_says_so() -> None:
    plan = plan_module(Bag(), bag())
    assert shapes(plan) == {"hist_ids": ("hist",), "hist_len": ("batch",), "dense": ("batch", 2)}


def test_other_names_are_told_by_lengths() -> None:
    class Named(Bag):
        def forward(self, inputs: dict[str, Tensor]) -> dict[str, Tensor]:
            renamed = {"hist_ids": inputs["h"], "hist_len": inputs["n"], "dense": inputs["dense"]}
            return super().forward(renamed)

    old = bag()
    example = {"h": old["hist_ids"], "n": old["hist_len"], "dense": old["dense"]}
    assert shapes(plan_module(Named(), example, lengths={"h": "n"}))["h"] == ("n",)


def test_a_dict_may_hold_both() -> None:
    class Both(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.pooled = Pooled()

        def forward(self, features: KeyedJaggedTensor, dense: Tensor) -> dict[str, Tensor]:
            return {"sum": self.pooled(features).values().sum(1) + dense[:, 0]}

    plan = plan_module(Both(), {"features": jagged(), "dense": torch.ones(4, 3)})
    assert shapes(plan)["dense"] == ("batch", 3) and "user.values" in shapes(plan)
    assert shapes(plan_module(Both(), (jagged(), torch.ones(4, 3)))).keys() == shapes(plan).keys()


def test_towers_have_modules_and_examples_of_their_own() -> None:
    plan = plan_module({"user": Pooled(), "item": Dense()}, {"user": jagged(), "item": cities()})
    assert list(plan.towers) == [TowerName.USER, TowerName.ITEM]
    assert "user.tables.embedding_bags.t_user.weight" in plan.trained.state_dict()
    assert plan.family == "Pooled_Dense"


def test_the_module_is_left_as_it_was() -> None:
    module = Dense()
    module.layer.eval()
    plan_module(module, cities())
    assert module.training and not module.layer.training
    assert not module.city._forward_pre_hooks


def test_the_plan_is_shown() -> None:
    shown = str(plan_module(Bag(), bag(), dims={"batch": (1, 64), "hist": {"high_per_row": 5}}))
    for line in (
        "  dim batch: 1 to 64 rows per call",
        "  dim hist: 0 to 5 for each row, elements of hist of all rows",
        "  input hist_ids: int64 [hist], ids below 9, counted by hist_len",
        "  input dense: float32 [batch, 2]",
        "  output sum: [4, 2] in the example",
    ):
        assert line in shown.splitlines()


def test_inputs_are_joined_by_one_dim() -> None:
    class Two(Pooled):
        def forward(self, features: KeyedJaggedTensor) -> KeyedTensor:
            return super().forward(features)

    example = KeyedJaggedTensor(
        keys=["user", "clicks"], values=torch.arange(8), lengths=torch.tensor([2, 0, 1, 1, 2, 0, 1, 1])
    )
    plan = plan_module(Two(), example, dims={"history": ("user.values", "clicks.values")})
    assert shapes(plan)["user.values"] == shapes(plan)["clicks.values"] == ("history",)
    assert list(plan.dims) == ["history"]


@pytest.mark.parametrize(
    ("dims", "message"),
    [
        ({"absent": (0, 9)}, "there is no dim absent; dims are batch, hist"),
        ({"hist": (9, 3)}, "hist: its smallest size, 9, is above its largest, 3"),
        ({"hist": (0, 5)}, "hist is bounded to 0 to 5, and the example has 6, in a row at most 3"),
        ({"hist": (7, None)}, "hist is bounded to 7 to any, and the example has 6"),
        ({"hist": {"high_per_row": 2}}, "at most 2 per row, and the example has 6, in a row at most 3"),
        ({"hist": {"high": 9, "high_per_row": 3}}, "it has both high and high_per_row"),
        ({"hist": {"highest": 9}}, "hist: highest: Extra inputs are not permitted"),
        ({"hist": (-1, 3)}, "hist: low"),
        ({"hist": "long"}, "hist is 'long', and no correction"),
        ({"hist": ("dense", "hist_ids")}, "hist names dense, which is no input with elements"),
        ({"batch": (2, 64)}, "batch is the rows of a call, from 1"),
        ({"batch": (1, 1)}, "batch ends at 1, and the largest batch has 2 to 65,536 rows"),
    ],
)
def test_a_correction_that_cannot_be_names_its_dim(dims: Mapping[str, tuple[int, int]], message: str) -> None:
    with pytest.raises(InvalidDeclaration, match=message) as refusal:
        plan_module(Bag(), bag(), dims=dims)
    assert refusal.value.where in ("hist", "absent", "batch") and refusal.value.hint


def test_inputs_of_unequal_rows_are_not_joined() -> None:
    with pytest.raises(InvalidDeclaration, match="have different numbers of elements"):
        plan_module(Pooled(), jagged(), dims={"history": ("user.values", "clicks.values")})


def test_a_dim_that_gets_the_name_of_another_is_not_joined_with_it_unseen() -> None:
    with pytest.raises(InvalidDeclaration, match="user joins inputs whose rows have different numbers"):
        plan_module(Pooled(), jagged(), dims={"user": ("clicks.values",)})


def test_dims_whose_names_would_be_the_same_are_numbered() -> None:
    example = {"a.b": torch.ones(4), "a.b.len": torch.ones(4, dtype=torch.int64)}
    example |= {"a_b": torch.ones(5), "a_b.len": torch.tensor([2, 1, 1, 1])}
    example |= {"a-b": torch.ones(6), "a-b.len": torch.tensor([2, 2, 1, 1])}
    plan = plan_module(Returns(lambda _: torch.ones(4)), example)
    assert list(plan.dims) == ["a_b", "a_b_2", "a_b_3"]


class Returns(nn.Module):
    def __init__(self, make: Callable[[Tensor], object]) -> None:
        super().__init__()
        self.make = make

    def forward(self, dense: Tensor) -> object:
        return self.make(dense)


DENSE = {"dense": torch.ones(ROWS, 2)}
Pair = namedtuple("Pair", ["a", "b"])


def test_a_named_tuple_of_tensors_has_the_names_of_its_fields() -> None:
    plan = plan_module(Returns(lambda x: Pair(x, x + 1)), DENSE)
    assert plan.towers[TowerName.MODEL].outputs.keys() == {"a", "b"}


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda x: [x], "the module returns list, and no tensor or dict of tensors"),
        (lambda x: (x, x), "the module returns tuple"),
        (lambda x: None, "the module returns NoneType"),
        (lambda x: {"a": 1}, "a dict with 'a': int"),
        (lambda x: {3: x}, "a dict with 3: Tensor"),
        (lambda x: {}, "an empty dict"),
        (lambda x: x @ x, "raised RuntimeError for the example, called as forward.dense"),
    ],
)
def test_what_is_no_tensor_or_dict_of_tensors_is_refused(
    make: Callable[[Tensor], object], message: str
) -> None:
    with pytest.raises(ModuleUnusable, match=message):
        plan_module(Returns(make), DENSE)


@pytest.mark.parametrize(
    ("module", "example", "message"),
    [
        (Dense, cities(), "the class Dense was given for the model tower, and no nn.Module"),
        ({"a.weight": torch.ones(2)}, cities(), "a state dict was given, and no nn.Module"),
        ({"users": Dense()}, {"users": cities()}, "'users' is no tower; towers are user, item"),
        (3, cities(), "int was given for the model tower, and no nn.Module"),
        ({}, {}, "no module was given"),
        ({"user": Dense()}, {"item": cities()}, "the example inputs are item, and the towers are user"),
        (Dense(), {}, "the example inputs are empty"),
        (Dense(), {"city": cities()["city"]}, "inputs city are not those of the module: missing a required"),
        (Dense(), {**cities(), "age": torch.ones(4)}, "not those of the module"),
        (Dense(), cities()["city"], "not those of the module: missing a required argument: 'dense'"),
        (Dense(), {**cities(), "city": [1, 2]}, "input city is list, and no tensor"),
        (
            Dense(),
            {**cities(), "city": torch.tensor([1, 2, 3])},
            "has 3 along its first axis, for 4 rows|has 4 along its first axis, for 3 rows",
        ),
        (Dense(), {**cities(), "dense": torch.ones(4, 3).double()}, "dense is float64, and packages take"),
        (Dense(), {**cities(), "dense": torch.tensor(3.0)}, "dense is a single number"),
        (Dense(), {"city": torch.ones(0, dtype=torch.int64), "dense": torch.ones(0, 3)}, "have no rows"),
        (Dense(), {**cities(), "city": torch.tensor([1, 2, 3, 99])}, "raised IndexError"),
        (
            Returns(lambda x: x.float()),
            {"dense": torch.ones(4, dtype=torch.int64)},
            "dense holds whole numbers",
        ),
        (Dense().to("meta"), cities(), "the module is on the meta device"),
        (Bag(), {**bag(), "hist_ids": torch.tensor([1, 2])}, "hist_ids has 2 along its first axis"),
    ],
)
def test_a_module_or_example_that_cannot_be_exported_is_one_error(
    module: object, example: object, message: str
) -> None:
    with pytest.raises(ModuleUnusable, match=message) as refusal:
        plan_module(module, example)
    assert refusal.value.where


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"table_rows": {"absent": 3}}, "table_rows names absent, which is no input"),
        ({"table_rows": {"hist_ids": "300"}}, "table_rows has '300' for hist_ids, and no number of ids"),
        ({"table_rows": {"hist_ids": 0}}, "table_rows has 0 for hist_ids"),
        ({"table_rows": {"dense": 3}}, "table_rows names dense, which is no input of ids"),
        ({"table_rows": {"hist_ids": 3}}, "the example has the id 6 in hist_ids, whose table has 3 rows"),
        ({"lengths": {"absent": "hist_len"}}, "lengths names absent, which is no input"),
        ({"lengths": {"hist_ids": "dense"}}, "dense cannot be the lengths of hist_ids"),
        ({"tower": "users"}, "'users' is no tower"),
    ],
)
def test_arguments_that_name_nothing_are_refused(arguments: Mapping[str, object], message: str) -> None:
    with pytest.raises(ExportError, match=message):
        plan_module(Bag(), bag(), **arguments)  # type: ignore[arg-type]  # some of them are wrong on purpose


def test_ids_that_nothing_looks_up_need_a_number_of_rows() -> None:
    module, example = Returns(lambda x: x.float()), {"dense": torch.tensor([1, 2, 3, 4])}
    plan = plan_module(module, example, table_rows={"dense": 10})
    assert plan.towers[TowerName.MODEL].declaration.inputs[0].table_rows == 10
