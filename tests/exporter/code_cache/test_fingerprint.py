"""Keys change with what compiled code depends on, and with nothing else."""

import importlib
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram

import exporter
from exporter.aoti.compile import compile_code
from exporter.code_cache import fingerprint
from exporter.code_cache.fingerprint import canonical, graph_fingerprint, prepare_keys, request_key
from exporter.config.parse import parse_pipeline_config
from exporter.dims.plan import plan_dims
from exporter.lowering.lower_tower import lower_tower
from exporter.models.registry import build_tower
from exporter.towers.tower import Tower
from exporter.towers.view import tower_configs
from exporter.trace.trace_tower import trace_tower
from tests.exporter.verify.conftest import mean_price_tower

CPU = torch.device("cpu")


class Steps(nn.Module):
    """Scales by a weight of `width`, and by constants of its code."""

    constants: Tensor

    def __init__(self, weight: float = 1.0, constants: tuple[float, ...] = (1.0, 2.0)) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.full((len(constants),), weight))
        self.register_buffer("constants", torch.tensor(constants), persistent=False)

    def forward(self, inputs: dict[str, Tensor]) -> dict[str, Tensor]:
        return {"scores": inputs["x"][:, None] * self.weight * self.constants}


def program(module: nn.Module, rows: int = 5) -> ExportedProgram:
    dims = {"x": {0: Dim("n", min=2, max=100)}}
    return torch.export.export(module, ({"x": torch.rand(rows)},), dynamic_shapes=(dims,), strict=False)


def test_equal_graphs_have_equal_fingerprints_whatever_their_weights() -> None:
    first, second = program(Steps(weight=1.0)), program(Steps(weight=0.0))
    assert graph_fingerprint(first, CPU) == graph_fingerprint(second, CPU)


@pytest.mark.parametrize(
    "other",
    [Steps(constants=(1.0, 3.0)), Steps(constants=(1.0, 2.0, 3.0)), Steps().double()],
    ids=["values of constants", "shapes", "dtypes"],
)
def test_other_constants_shapes_and_dtypes_are_other_graphs(other: nn.Module) -> None:
    assert graph_fingerprint(program(Steps()), CPU) != graph_fingerprint(program(other), CPU)


def test_the_threads_that_loops_are_written_for_are_in_the_fingerprint() -> None:
    traced, before = program(Steps()), torch.get_num_threads()
    own = graph_fingerprint(traced, CPU)
    torch.set_num_threads(before + 1)
    try:
        assert graph_fingerprint(traced, CPU) != own
    finally:
        torch.set_num_threads(before)


def with_text(tower: Tower) -> Tower:
    pipeline = replace(tower.config.pipeline, text="# a comment", train_input_path="elsewhere.parquet")
    return replace(tower, config=replace(tower.config, pipeline=pipeline))


def with_larger_batches(tower: Tower) -> Tower:
    *dims, batch = tower.plan.dims
    return replace(tower, plan=replace(tower.plan, dims=(*dims, replace(batch, high=128))))


def with_constants(tower: Tower) -> Tower:
    tower.module.register_buffer("start", torch.ones(2), persistent=False)
    return tower


@pytest.mark.parametrize(
    ("change", "matters"),
    [(with_text, False), (with_larger_batches, True), (with_constants, True)],
)
def test_a_request_is_known_by_what_its_code_depends_on(
    change: Callable[[Tower], Tower], matters: bool
) -> None:
    own = request_key([mean_price_tower(seed=1)], (), CPU)
    assert (request_key([change(mean_price_tower(seed=2))], (), CPU) != own) is matters


@pytest.fixture
def own_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], nn.Module]:
    """A module of a package that is no part of Slipway, by the source of its class."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def module(body: str) -> nn.Module:
        package = tmp_path / f"package{len(body)}"
        package.mkdir()
        (package / "__init__.py").write_text(f"from torch import nn\nclass Own(nn.Module):\n    {body}\n")
        own: nn.Module = importlib.import_module(package.name).Own()
        return own

    return module


def test_a_module_of_another_package_is_known_by_that_packages_source(
    own_module: Callable[[str], nn.Module],
) -> None:
    first, second = own_module("scale = 1"), own_module("scale = 10")
    keys = {
        request_key([replace(mean_price_tower(), module=each)], (), CPU) for each in (first, first, second)
    }
    assert len(keys) == 2


@pytest.mark.parametrize(
    "step",
    [parse_pipeline_config, tower_configs, plan_dims, build_tower, lower_tower, trace_tower, compile_code],
)
def test_a_request_is_known_by_the_code_of_every_step_up_to_the_compiler(
    step: Callable[..., object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, folder, *_ = step.__module__.split(".")
    keys = set()
    for text in ("LIMIT = 1", "LIMIT = 2"):
        code = tmp_path / text[-1]
        (code / folder).mkdir(parents=True)
        (code / folder / "module.py").write_text(text)
        monkeypatch.setattr(exporter, "__path__", [str(code)])
        keys.add(request_key([mean_price_tower()], (), CPU))
    assert len(keys) == 2


class Kind(StrEnum):
    A = "a"


@dataclass(frozen=True)
class Settings:
    """Something of a config."""

    names: frozenset[str]
    reason: str = ""


def test_a_config_is_written_in_an_order_of_its_own_and_without_words_for_people() -> None:
    assert canonical(Settings(frozenset("ba"), reason="words")) == {"type": "Settings", "names": ["a", "b"]}
    assert canonical({"kind": Kind.A, "sizes": (1, 2.5)}) == {"kind": "a", "sizes": [1, 2.5]}


def test_what_cannot_be_written_is_not_left_out() -> None:
    with pytest.raises(TypeError, match="object in a config"):
        canonical(object())


def test_what_all_keys_have_in_common_is_found_out_once(monkeypatch: pytest.MonkeyPatch) -> None:
    tower = mean_price_tower()
    prepare_keys()
    digested = fingerprint._digest_folder.cache_info().misses
    monkeypatch.setattr(subprocess, "Popen", None)  # nothing is asked of the compiler any more
    key = request_key([replace(tower, module=nn.Linear(1, 1))], (), CPU)
    assert fingerprint._digest_folder.cache_info().misses == digested
    monkeypatch.undo()
    fingerprint._digest_folder.cache_clear()
    assert request_key([replace(tower, module=nn.Linear(1, 1))], (), CPU) == key
