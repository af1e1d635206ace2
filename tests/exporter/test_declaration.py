"""A declaration that contradicts itself is refused with the name of what is wrong."""

import pytest
from pydantic import ValidationError

from exporter.declaration import DimDeclaration, InputDeclaration, TensorDeclaration, TowerDeclaration
from exporter.dims.declared_dims import plan_declared

Declared = dict[str, object]
CLICKS: Declared = {"name": "clicks", "dtype": "int64", "shape": ["n"], "table_rows": 9, "lengths": "counts"}
COUNTS: Declared = {"name": "counts", "dtype": "int64", "shape": ["batch"]}
DIM: Declared = {"name": "n", "high_per_row": 4}


def tower(*inputs: Declared, dims: tuple[Declared, ...] = (DIM,)) -> TowerDeclaration:
    return TowerDeclaration.model_validate({"inputs": inputs, "dims": dims})


def test_inputs_are_filled_or_count_others() -> None:
    made = tower(CLICKS, COUNTS)
    assert [each.name for each in made.filled] == ["clicks"]
    assert [each.name for each in made.counting] == ["counts"]


def test_it_survives_a_manifest() -> None:
    made = tower(CLICKS, COUNTS)
    assert TowerDeclaration.model_validate_json(made.model_dump_json()) == made


@pytest.mark.parametrize(
    ("inputs", "dims", "message"),
    [
        ([CLICKS], [DIM], "clicks has its lengths in counts, which is no input"),
        ([CLICKS, COUNTS], [], "clicks has the dim n, which is not declared"),
        ([COUNTS | {"table_rows": 2}], [DIM], "dim n is declared, and no input has it"),
        ([CLICKS, COUNTS, COUNTS], [DIM], "two inputs are named counts"),
        ([CLICKS, COUNTS, CLICKS | {"name": "again", "column": "clicks"}], [DIM], "two columns are named"),
        ([CLICKS | {"table_rows": None}, COUNTS], [DIM], "clicks holds int64: give table_rows"),
        ([CLICKS | {"dtype": "float32"}, COUNTS], [DIM], "table_rows is for whole numbers"),
        ([CLICKS | {"dtype": "int32", "table_rows": 2**32}, COUNTS], [DIM], "int32, which cannot name"),
        ([CLICKS | {"lengths": None}, COUNTS | {"table_rows": 2}], [DIM], "clicks has dim n: name the input"),
        ([CLICKS, COUNTS | {"table_rows": 3}], [DIM], "counts holds lengths: it takes no column"),
        ([CLICKS, COUNTS | {"dtype": "float32"}], [DIM], "counts holds lengths: declare it int64"),
        ([CLICKS | {"fill": 9}, COUNTS], [DIM], "clicks is filled with 9.0, which is no row"),
        ([CLICKS | {"shape": [3]}, COUNTS], [DIM], "its first axis is `batch` or the name of a dim"),
        (
            [CLICKS, COUNTS, CLICKS | {"name": "b", "shape": ["m"]}],
            [DIM, {"name": "m"}],
            "counts counts clicks and b, which must then share one dim",
        ),
        ([CLICKS, COUNTS], [DIM, {"name": "batch"}], "two dims are named batch"),
    ],
)
def test_a_contradiction_is_refused(inputs: list[Declared], dims: list[Declared], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        tower(*inputs, dims=tuple(dims))


def test_a_dim_has_one_bound() -> None:
    with pytest.raises(ValidationError, match="dim n has both high and high_per_row"):
        DimDeclaration(name="n", high=3, high_per_row=4)


def test_one_element_per_row_may_have_lengths_too() -> None:
    counted = InputDeclaration(name="x", dtype="float32", shape=("batch",), lengths="counts")
    declared = TowerDeclaration(inputs=(counted, InputDeclaration.model_validate(COUNTS)))
    assert [tensor.name for tensor in declared.counting] == ["counts"]
    [batch] = plan_declared(declared, max_batch_size=8).dims
    assert (batch.name, batch.share) == ("batch", None)


def test_elements_need_lengths() -> None:
    with pytest.raises(ValidationError, match="x has dim n: name the input with its lengths"):
        TowerDeclaration(
            inputs=(InputDeclaration(name="x", dtype="float32", shape=("n",)),),
            dims=(DimDeclaration(name="n"),),
        )


def test_every_embedded_tensor_has_a_known_dim() -> None:
    embedded = TensorDeclaration(name="pooled", dtype="float32", shape=("rows", 8))
    with pytest.raises(ValidationError, match="pooled has the dim rows, which is not declared"):
        TowerDeclaration(
            inputs=(InputDeclaration(name="x", dtype="float32", shape=("batch",)),), embedded=(embedded,)
        )
