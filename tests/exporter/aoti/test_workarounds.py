"""Every workaround is still needed: the fault is there, and no release has its fix."""

import pytest
import torch
from torch._inductor import codecache  # noqa: TID251  where the fault is
from torch._inductor.cpu_vec_isa import VecISA  # noqa: TID251  where the fault is
from torch._inductor.runtime.cache_dir_utils import default_cache_dir  # noqa: TID251  where the fault is
from torch._inductor.sizevars import SizeVarAllocator  # noqa: TID251  where the fault is
from torch.export import unflatten
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from exporter.aoti.workarounds import (
    HEADERS,
    LOOPS,
    MERGED_CALLS,
    PROBES,
    REEXPORT,
    WORKAROUNDS,
)
from exporter.torch_releases import SUPPORTED, release_of
from tests.exporter.passes.conftest import Nested, rows, traced


def _release(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("+")[0].split(".")[:2])


def test_no_workaround_has_outlived_its_fix() -> None:
    oldest = min(_release(release) for release in SUPPORTED)
    overdue = [each.name for each in WORKAROUNDS if each.fixed_in and oldest >= _release(each.fixed_in)]
    assert overdue == []


@pytest.mark.filterwarnings("ignore")
def test_torch_still_cannot_trace_what_it_has_unflattened() -> None:
    with pytest.raises(Exception, match="Detected mismatch between the structure"):
        traced(unflatten(traced(Nested())))
    assert REEXPORT.fixed_in is None


@pytest.mark.filterwarnings("ignore")
def test_torch_still_merges_calls_that_are_not_alike() -> None:
    module = Nested()
    wrong = unflatten(traced(module))(rows(4))["y"]
    assert not torch.allclose(wrong, module(rows(4))["y"])
    assert MERGED_CALLS.fixed_in is None


def test_torch_still_keeps_compiled_headers_below_tmpdir() -> None:
    assert codecache._HEADER_DIR.startswith(default_cache_dir())
    assert HEADERS.fixed_in is None


def test_inductor_of_two_releases_does_not_see_that_a_sum_divides_its_multiples() -> None:
    shapes = ShapeEnv()
    prefixes, history = (shapes.create_unbacked_symint().node.expr for _ in range(2))
    sizes = SizeVarAllocator(shapes)
    assert sizes.statically_known_multiple_of(32 * history, history)
    sees = sizes.statically_known_multiple_of(32 * (prefixes + history), prefixes + history)
    assert sees is (release_of(torch.__version__) not in ("2.12", "2.13"))
    assert LOOPS.fixed_in == "2.14"


def test_torch_still_probes_instruction_sets_with_its_own_headers() -> None:
    assert "#include <ATen/cpu/vec/vec.h>" in VecISA._avx_code
    assert PROBES.fixed_in is None
