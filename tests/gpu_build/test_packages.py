"""What docs/gpu.md says of packages for a GPU, read out of packages that were built without one."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.gpu.cases import CASES, Case
from tests.gpu_build.package import TARGET, Built, gpu_of, parameters_of

pytestmark = pytest.mark.gpubuild

_OURS = ("hstu_attention_kernel", "encode_positions_kernel", "gate_kernel", "project_kernel")
# Sequences that lookups pad, each to its longest row.
_PADDED = {("mind", "user"): 1, ("multi_tower_din", "model"): 2, ("dbmtl", "model"): 4}
_LARGE = 128  # rows of a table; no size that is traced comes near

each_case = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)


@each_case
def test_it_is_for_the_gpu_and_says_so(case: Case, packages: list[Built]) -> None:
    for built in packages:
        assert built.architecture == TARGET
        assert (built.metadata["AOTI_DEVICE_KEY"], built.metadata["AOTI_COMPUTE_CAPABILITY"]) == (
            "cuda",
            "90",
        )
        assert {gpu_of(kernel) for kernel in built.named(".cubin").values()} == {90}


@each_case
def test_it_has_the_kernels_that_it_loads_and_no_others(case: Case, packages: list[Built]) -> None:
    for built in packages:
        assert {kernel.file for kernel in built.kernels} == built.named(".cubin").keys()


@each_case
def test_kernels_are_launched_with_as_many_arguments_as_they_take(
    case: Case, packages: list[Built], tmp_path: Path
) -> None:
    for built in packages:
        built.unpacked(tmp_path)
        taken = [parameters_of(tmp_path / kernel.file) for kernel in built.kernels]
        assert taken == [kernel.arguments for kernel in built.kernels]


@each_case
def test_its_library_needs_torch_and_the_driver_alone(
    case: Case, packages: list[Built], loads: Callable[[Path], str], tmp_path: Path
) -> None:
    for built in packages:
        assert loads(built.unpacked(tmp_path)) == ""


@each_case
def test_nothing_of_it_is_fbgemm(case: Case, packages: list[Built]) -> None:
    for built in packages:
        assert built.op_libraries == ()
        assert [name for name, data in built.files.items() if b"fbgemm" in data.lower()] == []


@each_case
def test_attention_is_computed_by_the_kernel_that_was_asked_for(case: Case, packages: list[Built]) -> None:
    for built in packages:
        layers = built.attention.get("triton", 0)
        assert built.calls("hstu_attention_kernel") == layers
        assert {kernel.symbol for kernel in built.kernels}.isdisjoint(_OURS) == (layers == 0)
    if ("kernel", "triton") in case.changes:
        assert any(built.attention.get("triton") for built in packages)


@each_case
def test_a_loaded_package_keeps_each_table_once(case: Case, packages: list[Built]) -> None:
    for built in packages:
        kept = [constant.name for constant in built.constants if not constant.is_folded]
        assert len(kept) == len(set(kept))
        rows = {shape[0] for shape in built.tables.values() if shape[0] >= _LARGE}
        assert [each for each in built.constants if each.is_folded and rows & set(each.shape)] == []


@each_case
def test_the_host_waits_where_it_is_documented_to(case: Case, packages: list[Built]) -> None:
    for built in packages:
        waits = 0
        if built.looks_up:
            waits += 1 + _PADDED.get((case.model, built.tower), 0)
        if any(built.attention.values()):
            truncates = case.model == "dlrm_hstu_trunc"
            waits += truncates + (1 + truncates) * (built.attention["pytorch"] > 0)
        assert built.waits == ["aoti_torch_item_int64"] * waits


@each_case
def test_kernels_are_tuned_on_tables_themselves(case: Case, packages: list[Built]) -> None:
    for built in packages:
        assert built.kernels == [] or ".run(" in built.tuning
        large = {shape for shape in built.tables.values() if shape[0] >= _LARGE}
        assert large.isdisjoint(built.made_up)
