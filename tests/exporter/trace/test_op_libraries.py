"""Whose operators a server must have, and whose only a process that runs a program uncompiled."""

import fbgemm_gpu  # noqa: F401  registers torch.ops.fbgemm
import pytest
import torch
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram

from exporter.code_cache.fingerprint import graph_fingerprint
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


def test_another_kernel_is_another_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    program, cpu = traced(), torch.device("cpu")
    before = graph_fingerprint(program, cpu)
    monkeypatch.setattr("exporter.code_cache.fingerprint._digest_beside", lambda module: "as changed")
    assert graph_fingerprint(program, cpu) != before
