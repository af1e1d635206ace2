import pytest
from torch import nn

from exporter.errors import PassRefused
from exporter.passes.editable import EditableProgram
from exporter.passes.variants import variants
from tests.exporter.passes.conftest import Nested, TrueThenFalse, TwoNames, assert_same, traced


def served(module: nn.Module, name: str) -> dict[str, list[str]]:
    """Variant -> the calls that it serves."""
    found = variants(EditableProgram(traced(module)), name)
    return {variant.name: [call.name for call in variant.calls] for variant in found}


def test_a_call_with_another_constant_is_another_variant() -> None:
    assert served(TrueThenFalse(), "n") == {"n": ["n"], "n@1": ["n@1"]}


def test_calls_that_were_traced_alike_are_one_variant() -> None:
    assert served(Nested(), "p.n") == {
        "p.n": ["p.n", "p.n@4"],
        "p.n@1": ["p.n@1", "p.n@2", "p.n@3", "p.n@5"],
    }


def test_calls_differ_where_only_the_calls_within_them_do() -> None:
    """What torch unflattens takes all three for one, and then computes something else."""
    assert served(Nested(), "p") == {"p": ["p", "p@2"], "p@1": ["p@1"]}


@pytest.mark.parametrize(("name", "other"), [("a", "b"), ("b", "a")])
def test_a_shared_module_is_found_under_each_of_its_names(name: str, other: str) -> None:
    found = variants(EditableProgram(traced(TwoNames())), name)
    assert [[call.name for call in variant.calls] for variant in found] == [["a", "a@1"], ["b"]]
    assert {variant.names for variant in found} == {(name, other)}


def test_a_call_knows_its_line_of_code() -> None:
    (first, _) = variants(EditableProgram(traced(TrueThenFalse())), "n")
    assert first.calls[0].place.startswith("exporter/passes/conftest.py:")


def test_an_unknown_name_is_refused_with_those_there_are() -> None:
    with pytest.raises(PassRefused, match="no call of p.m") as refused:
        variants(EditableProgram(traced(Nested())), "p.m")
    assert refused.value.hint == "it calls p, p.n, p.n.linear"


@pytest.mark.parametrize("module", [TrueThenFalse(), TwoNames(), Nested()])
def test_a_program_made_editable_computes_what_eager_computes(module: nn.Module) -> None:
    assert_same(module, EditableProgram(traced(module)))


@pytest.mark.parametrize("module", [TrueThenFalse(), TwoNames(), Nested()])
def test_a_second_trace_keeps_dims_names_and_submodules(module: nn.Module) -> None:
    program = traced(module)
    again = traced(EditableProgram(program))
    assert_same(module, again.module())
    assert list(again.range_constraints.values()) == list(program.range_constraints.values())
    assert list(again.state_dict) == list(program.state_dict)
    name = next(iter(dict(module.named_children())))
    assert [v.name for v in variants(EditableProgram(again), name)] == list(served(module, name))
