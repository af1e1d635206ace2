"""Whose operators a server must have, and whose only a process that runs a program uncompiled."""

import shutil
from pathlib import Path

import fbgemm_gpu  # noqa: F401  registers torch.ops.fbgemm
import pytest
import torch
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram

from exporter.code_cache import fingerprint
from exporter.code_cache.fingerprint import graph_fingerprint
from exporter.models.hstu.kernels.jagged_attention import jagged_attention
from exporter.trace.op_libraries import (
    all_graphs,
    find_compiled_in_modules,
    find_known_libraries,
    find_op_libraries,
)
from tests.exporter.aoti.compiled_in import doubled

OWN = "tests.exporter.aoti.compiled_in"


class Doubled(nn.Module):
    def forward(self, inputs: dict[str, Tensor]) -> dict[str, Tensor]:
        ends = torch.ops.fbgemm.asynchronous_complete_cumsum(inputs["x"])
        return {"doubled": doubled(ends)}


def traced() -> ExportedProgram:
    dims = {"x": {0: Dim("n", min=2, max=100)}}
    return torch.export.export(Doubled(), ({"x": torch.arange(5)},), dynamic_shapes=(dims,), strict=False)


def test_a_server_need_not_import_operators_whose_kernels_are_in_the_package() -> None:
    assert find_op_libraries([traced()]) == ("fbgemm_gpu",)


def test_what_runs_a_program_uncompiled_imports_them() -> None:
    assert find_known_libraries(all_graphs([traced()])) == ("fbgemm_gpu", OWN)
    assert find_compiled_in_modules(all_graphs([traced()])) == (OWN,)


class Attends(nn.Module):
    def forward(self, inputs: dict[str, Tensor]) -> dict[str, Tensor]:
        x_NQ = inputs["x"]
        offsets_B1 = torch.arange(x_NQ.shape[0] + 1)
        return {"y": jagged_attention(x_NQ, x_NQ, x_NQ, offsets_B1, offsets_B1, None, 1, 1.0, 1.0)}


def attending() -> ExportedProgram:
    dims = {"x": {0: Dim("n", min=2, max=100)}}
    return torch.export.export(Attends(), ({"x": torch.randn(5, 4)},), dynamic_shapes=(dims,), strict=False)


def test_kernels_for_a_cpu_are_in_the_package_as_well() -> None:
    program = attending()
    assert find_op_libraries([program]) == ()
    assert find_compiled_in_modules(all_graphs([program])) == (jagged_attention._init_fn.__module__,)


def test_another_kernel_for_a_cpu_is_another_graph(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    program, cpu = attending(), torch.device("cpu")
    before = graph_fingerprint(program, cpu)
    folder = tmp_path / "kernels"
    shutil.copytree(fingerprint._KERNELS, folder)
    monkeypatch.setattr(fingerprint, "_KERNELS", folder)
    assert graph_fingerprint(program, cpu) == before
    with (folder / "jagged_attention.h").open("a") as text:
        text.write("// another one")
    fingerprint._digest_folder.cache_clear()
    assert graph_fingerprint(program, cpu) != before


def test_another_kernel_is_another_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    program, cpu = traced(), torch.device("cpu")
    before = graph_fingerprint(program, cpu)
    monkeypatch.setattr("exporter.code_cache.fingerprint._digest_beside", lambda module: "as changed")
    assert graph_fingerprint(program, cpu) != before
