"""What calls keep, share and change is seen, and calls that do nothing of the kind are never accused."""

import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

from exporter.verify.checks.leaks import is_leak
from exporter.verify.observe import (
    call_at_once,
    filled_memory,
    measure_growth,
    observe_call,
    other_threads,
)
from exporter.verify.observe_dtypes import find_unchecked_dtypes

Tensors = dict[str, Tensor]
THREADS_BEFORE = torch.get_num_threads()
INPUTS, OTHERS = {"x": torch.rand(7, 3)}, {"x": torch.rand(7, 3)}


def double(inputs: Tensors) -> Tensors:
    return {"y": inputs["x"] * 2}


def refuse_with(message: str) -> Callable[[Tensors], Tensors]:
    def refuse(inputs: Tensors) -> Tensors:
        if inputs["x"].dtype is not torch.float32:
            raise RuntimeError(message)
        return double(inputs)

    return refuse


def leaks(grown: dict[str, float]) -> list[str]:
    return [name for name, more in grown.items() if is_leak(name, more)]


def test_honest_calls_grow_nothing() -> None:
    for _ in range(50):
        assert leaks(measure_growth(double, INPUTS).per_call) == []


def test_a_few_bytes_kept_of_each_call_are_a_leak() -> None:
    kept: list[Tensor] = []

    def keep(inputs: Tensors) -> Tensors:
        kept.append(inputs["x"][:1].clone())
        return double(inputs)

    assert "bytes of memory" in leaks(measure_growth(keep, INPUTS).per_call)


def test_a_cache_that_is_filled_once_is_no_leak() -> None:
    kept: dict[str, Tensor] = {}

    def remember(inputs: Tensors) -> Tensors:
        kept.setdefault("weights", torch.rand(1000))
        return double(inputs)

    assert leaks(measure_growth(remember, INPUTS).per_call) == []


def test_a_cache_that_fills_slowly_is_no_leak() -> None:
    kept: list[Tensor] = []

    def remember_some(inputs: Tensors) -> Tensors:
        if len(kept) < 500:  # for more calls than the first intervals have
            kept.append(torch.rand(100))
        return double(inputs)

    growth = measure_growth(remember_some, INPUTS)
    assert growth.calls > 500
    assert leaks(growth.per_call) == []


def test_open_files_are_counted(tmp_path: Path) -> None:
    files = []

    def leave_open(inputs: Tensors) -> Tensors:
        files.append((tmp_path / "log").open("a"))
        return double(inputs)

    found = leaks(measure_growth(leave_open, INPUTS).per_call)
    for file in files:
        file.close()
    assert "open files" in found


def test_layouts_and_changed_tensors_are_named() -> None:
    room = torch.empty(7, 3)

    def share_memory(inputs: Tensors) -> Tensors:
        inputs["x"][0] = 0
        return {"y": torch.mul(inputs["x"], 2, out=room), "t": inputs["x"].t().clone().t()}

    seen = observe_call(share_memory, {"x": torch.rand(7, 3)}, {"x": torch.rand(7, 3)})
    assert seen.changed_inputs == ("x",)
    assert seen.changed_outputs == ("y",)
    assert [(each.name, each.shape) for each in seen.outputs] == [("y", (7, 3)), ("t", (7, 3))]
    seen = observe_call(double, INPUTS, OTHERS)
    assert (seen.changed_inputs, seen.changed_outputs) == ((), ())


def test_calls_that_share_memory_differ_while_two_threads_call() -> None:
    room: list[Tensor] = [torch.zeros(7, 3)]

    def mix(inputs: Tensors) -> Tensors:
        room[0] = inputs["x"]
        time.sleep(0.001)
        return double({"x": room[0]})

    found: list[tuple[int, Tensors, Tensors]] = []
    counts = call_at_once(mix, (INPUTS, OTHERS), lambda *each: found.append(each))
    assert counts.differing
    for number, alone, differing in found:
        assert torch.equal(alone["y"], (INPUTS, OTHERS)[number]["x"] * 2)
        assert torch.equal(differing["y"], (OTHERS, INPUTS)[number]["x"] * 2)


def test_calls_that_share_nothing_are_equal_in_two_threads() -> None:
    found: list[tuple[int, Tensors, Tensors]] = []
    counts = call_at_once(double, (INPUTS, OTHERS), lambda *each: found.append(each))
    assert counts.calls >= 8
    assert counts.differing == 0
    assert found == []


def test_outputs_for_inputs_that_do_not_lie_row_by_row_are_compared() -> None:
    def read_as_if(inputs: Tensors) -> Tensors:
        x = inputs["x"]
        return {"y": x.as_strided(x.shape, (x.shape[1], 1)) * 2}

    def refuse(inputs: Tensors) -> Tensors:
        if not inputs["x"].is_contiguous():
            raise RuntimeError("unmatched stride value at 0")
        return double(inputs)

    assert observe_call(read_as_if, INPUTS, OTHERS).wrong_if_spread == ("y",)
    assert observe_call(refuse, INPUTS, OTHERS).wrong_if_spread == ()
    assert observe_call(double, INPUTS, OTHERS).wrong_if_spread == ()


@pytest.mark.parametrize(
    ("call", "found"),
    [
        (lambda inputs: {"y": inputs["x"].view(torch.float32)[:, :3] * 2}, "x, float64, computed"),
        (lambda inputs: {"y": double(inputs)["y"].float()}, ""),
        (refuse_with("input_handles[0]: unmatched dtype, expected: 6"), ""),
        (refuse_with("index out of bounds"), "x, float64, index out of bounds"),
    ],
    ids=["read as if", "converted", "refused", "refused for its numbers"],
)
def test_inputs_of_another_dtype_are_refused_for_it_or_computed_rightly(
    call: Callable[[Tensors], Tensors], found: str
) -> None:
    unchecked = find_unchecked_dtypes(iter([(call, INPUTS)]), 1e-5)
    assert "".join(f"{each.input}, {each.given}, {each.refusal or 'computed'}" for each in unchecked) == found


def test_outputs_that_are_others_after_many_calls_are_named() -> None:
    calls: list[None] = []

    def tire(inputs: Tensors) -> Tensors:
        calls.append(None)
        return {"x": inputs["x"], "y": inputs["x"] * (2 if len(calls) < 20 else 3)}

    assert measure_growth(tire, INPUTS).moved == ("y",)
    assert measure_growth(double, INPUTS).moved == ()


def test_calls_that_differ_by_rounding_of_their_precision_are_the_same() -> None:
    calls: list[None] = []

    def round_otherwise(inputs: Tensors) -> Tensors:
        calls.append(None)
        large = torch.tensor([1000.0, 1e-3])
        return {"y": large * (1 + 1e-3 * (len(calls) > 1)), "best": torch.tensor([1_000_000])}

    assert measure_growth(round_otherwise, INPUTS, rounding=1e-2).moved == ()
    calls.clear()
    assert measure_growth(round_otherwise, INPUTS).moved == ("y",)
    ids = iter(range(1_000_000, 2_000_000))
    assert measure_growth(lambda inputs: {"best": torch.tensor([next(ids)])}, INPUTS).moved == ("best",)


def test_a_call_alone_is_compared_with_calls_of_its_own_thread() -> None:
    def tell_thread(inputs: Tensors) -> Tensors:
        return {"y": inputs["x"] + float(threading.current_thread() is threading.main_thread())}

    assert call_at_once(tell_thread, (INPUTS, OTHERS), lambda *each: None).differing == 0


def test_an_error_of_one_thread_ends_the_other() -> None:
    def fail_for_others(inputs: Tensors) -> Tensors:
        if inputs is OTHERS:
            raise MemoryError("no room")
        return double(inputs)

    with pytest.raises(MemoryError, match="no room"):
        call_at_once(fail_for_others, (INPUTS, OTHERS), lambda *each: None)


def test_new_memory_holds_huge_numbers_only_inside() -> None:
    with filled_memory():
        inside = torch.empty(1 << 20)
    assert float(inside[1 << 19]) > 1e38
    with other_threads():
        assert torch.get_num_threads() == (1 if THREADS_BEFORE > 1 else 2)
    assert torch.get_num_threads() == THREADS_BEFORE
