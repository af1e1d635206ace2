"""The traced program must keep to the plan: nothing specialised, narrowed or shared by accident."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.export import ExportedProgram

from exporter.aoti.torch_private import sizes_zero_and_one_stay_dynamic
from exporter.dims.plan import DimPlan, DynamicDim, TensorInput
from exporter.dims.torch_dims import check_program, input_sizes, to_torch_dims
from exporter.errors import DimPlanViolated, DimsConflict, DimSpecialised

Body = Callable[[Tensor, Tensor], Tensor]


def dim(name: str, low: int = 0, high: int | None = 100) -> DynamicDim:
    return DynamicDim(name=name, low=low, high=high, reason="for a test")


def plan(a: int | str, b: int | str, *dims: DynamicDim) -> DimPlan:
    inputs = (
        TensorInput(name="a", dtype="float32", shape=(a,)),
        TensorInput(name="b", dtype="float32", shape=(b,)),
    )
    return DimPlan(inputs=inputs, dims=dims)


def program_of(body: Body, traced_plan: DimPlan) -> ExportedProgram:
    class Model(nn.Module):
        def forward(self, inputs: dict[str, Tensor]) -> dict[str, Tensor]:
            return {"out": body(inputs["a"], inputs["b"])}

    shapes = {"a": 5, "b": 5 if traced_plan.inputs[0].shape == traced_plan.inputs[1].shape else 7}
    inputs = {name: torch.ones(size) for name, size in shapes.items()}
    with sizes_zero_and_one_stay_dynamic():
        return torch.export.export(
            Model(), (inputs,), dynamic_shapes=(to_torch_dims(traced_plan),), strict=False
        )


def test_a_program_that_keeps_to_the_plan_names_its_symbols() -> None:
    shared = plan("n", "n", dim("n"))
    assert set(check_program(program_of(lambda a, b: a + b, shared), shared)) == {"n"}


def test_a_dim_without_a_planned_bound_stays_unbounded() -> None:
    open_ended = plan("n", "n", dim("n", high=None))
    check_program(program_of(lambda a, b: a + b, open_ended), open_ended)


def test_a_specialised_size_is_named() -> None:
    program = program_of(lambda a, b: a.sum() + b.sum(), plan(5, 7))
    with pytest.raises(DimSpecialised, match=r"a, axis 0: planned as dim n of 0 to 100, traced as 5"):
        check_program(program, plan("n", 7, dim("n")))


def test_a_size_that_should_be_fixed_may_not_vary() -> None:
    program = program_of(lambda a, b: a.sum() + b.sum(), plan("n", 7, dim("n")))
    with pytest.raises(DimPlanViolated, match="a, axis 0: planned as 5"):
        check_program(program, plan(5, 7))


def test_dims_that_became_one_are_refused() -> None:
    program = program_of(lambda a, b: a + b, plan("n", "n", dim("n")))
    with pytest.raises(DimsConflict, match=r"became one in the trace: n \(a\) and m \(b\)"):
        check_program(program, plan("n", "m", dim("n"), dim("m")))


def test_one_planned_dim_may_not_be_two_in_the_trace() -> None:
    program = program_of(lambda a, b: a.sum() + b.sum(), plan("n", "m", dim("n"), dim("m")))
    with pytest.raises(DimPlanViolated, match="b, axis 0"):
        check_program(program, plan("n", "n", dim("n")))


def test_narrowed_bounds_are_refused() -> None:
    narrow = plan("n", "n", dim("n", high=50))
    program = program_of(lambda a, b: a + b, narrow)
    with pytest.raises(DimSpecialised, match="a, axis 0: .* 0 to 100, the trace allows 0 to 50") as raised:
        check_program(program, plan("n", "n", dim("n")))
    assert raised.value.where == "a"


def test_input_sizes_reads_each_dim() -> None:
    two = plan("n", "m", dim("n"), dim("m"))
    assert input_sizes(two, {"a": torch.ones(3), "b": torch.ones(4)}) == {"n": 3, "m": 4}


def test_inputs_that_disagree_on_a_dim_are_named() -> None:
    with pytest.raises(DimPlanViolated, match=r"b has shape \(4,\)"):
        input_sizes(plan("n", "n", dim("n")), {"a": torch.ones(3), "b": torch.ones(4)})
