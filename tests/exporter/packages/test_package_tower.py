"""Cold once, warm ever after, through the gate each time; and code that is wrong is dropped."""

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

from exporter.code_cache.cache import CodeCache, open_code_cache
from exporter.code_cache.entry import pack_entry, unpack_entry
from exporter.config.families.match.hstu_match import HstuMatchConfig
from exporter.errors import WeightsDoNotFit
from exporter.packages.package_tower import CodeOrigin, Packaged, package_tower
from exporter.packages.parts import PACKAGE_PATH, Part
from exporter.packages.request import PackagingRequest
from exporter.stages import StageClock, StageEvent
from exporter.towers.tower import Tower
from exporter.verify.cases import Cases
from tests.exporter.stage_events import ignore_stages
from tests.exporter.verify.conftest import MeanPrice, batch, clicks, mean_price_tower

pytestmark = pytest.mark.slow

Export = Callable[..., Packaged]


def order_of(tower: Tower, folder: Path) -> PackagingRequest:
    return PackagingRequest(
        tower=tower,
        parts=(Part(tower=tower, path=PACKAGE_PATH),),
        inputs=clicks(3, 0, 4),
        make_cases=lambda: Cases(
            must_agree=[batch("one_row", 3), batch("batch_7", 2, 0, 1, 1, 0, 3, 1)], must_be_refused=[]
        ),
        device=torch.device("cpu"),
        folder=folder,
    )


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A code cache after one export, of a module with weights of its own."""
    folder = tmp_path_factory.mktemp("cache")
    order = order_of(mean_price_tower(), tmp_path_factory.mktemp("cold"))
    made = package_tower(order, open_code_cache(str(folder)), StageClock("user", ignore_stages))
    assert (made.origin.code, made.origin.note) == ("cold", "the code cache has no code of this request")
    assert made.report.run_by_node == ("batch_7",)
    return folder


@pytest.fixture
def cache(kept: Path, tmp_path: Path) -> CodeCache:
    """A cache of this test's own, with the same code."""
    return open_code_cache(str(shutil.copytree(kept, tmp_path / "cache")))


@pytest.fixture
def export(cache: CodeCache, tmp_path: Path) -> Export:
    def export(tower: Tower, on_stage: Callable[[StageEvent], None] = ignore_stages) -> Packaged:
        return package_tower(order_of(tower, tmp_path), cache, StageClock("user", on_stage))

    return export


def test_other_weights_of_an_equal_request_are_neither_traced_nor_compiled(export: Export) -> None:
    details: list[str] = []
    made = export(mean_price_tower(seed=7), lambda event: details.append(event.detail))
    assert (made.origin.code, made.origin.reused) == ("warm", "request")
    assert made.report.largest_difference < 1e-5
    assert made.report.run_by_node == ()  # there was no program to run
    assert sum(detail.startswith("skipped: warm") for detail in details) == 2


def with_other_config(tower: Tower) -> Tower:
    """A config that differs where the graph does not."""
    model = tower.config.pipeline.model
    assert isinstance(model, HstuMatchConfig)
    changed = replace(tower.config.pipeline, model=replace(model, max_seq_len=99))
    return replace(tower, config=replace(tower.config, pipeline=changed))


def test_an_equal_graph_of_another_request_is_not_compiled(export: Export) -> None:
    made = export(with_other_config(mean_price_tower(seed=8)))
    assert (made.origin.code, made.origin.reused) == ("warm", "graph")
    again = export(with_other_config(mean_price_tower(seed=9)))
    assert again.origin.reused == "request"


class LargerTable(MeanPrice):
    """The same code, and a larger table than the config says: only the weights' shapes tell them apart."""

    def __init__(self) -> None:
        super().__init__(seed=0)
        self.table = nn.Embedding(60, 8)


def test_weights_of_another_shape_are_cold_and_say_why(export: Export) -> None:
    made = export(replace(mean_price_tower(), module=LargerTable().eval()))
    assert made.origin == CodeOrigin(
        code="cold",
        note="the weights do not fit the code of an equal request: "
        "table.weight is float32 [60, 8], strides [8, 1], not float32 [50, 8], strides [8, 1]",
    )


def test_weights_of_other_names_are_refused_and_named(cache: CodeCache, kept: Path, tmp_path: Path) -> None:
    [request] = (kept / "requests").iterdir()
    [known] = cache.find_request(request.stem)
    weights = mean_price_tower().module.state_dict()
    name = next(iter(weights))
    renamed = {f"{each}_2" if each == name else each: value for each, value in weights.items()}
    assert known.find_mismatch(renamed) == f"there is no {name}"
    assert known.find_mismatch({**weights, "more": weights[name]}) == "more is new"
    with pytest.raises(WeightsDoNotFit, match=f"there is no {name}"):
        known.assemble(renamed, tmp_path / "aoti_model.pt2")


def test_code_that_fails_the_gate_is_dropped_and_the_export_goes_cold_once(
    export: Export, cache: CodeCache, kept: Path, tmp_path: Path
) -> None:
    [entry] = (tmp_path / "cache" / "code").iterdir()
    known = unpack_entry(entry.read_bytes(), entry.stem)
    assert known is not None
    library = next(name for name in known.code.files if name.endswith(".so"))
    files = {**known.code.files, library: known.code.files[library][:5000]}
    entry.write_bytes(pack_entry(replace(known, code=replace(known.code, files=files))))
    told: list[StageEvent] = []
    made = export(mean_price_tower(seed=3), told.append)
    assert made.origin.code == "cold"
    assert made.origin.note.startswith("code of the cache was dropped: the process running the package ended")
    assert [event.detail for event in told if event.kind == "noted"] == [made.origin.note]
    assert export(mean_price_tower(seed=4)).origin.reused == "request"


def test_code_that_hangs_is_ended_and_dropped(
    cache: CodeCache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "ops_that_hang.py").write_text("import time; time.sleep(600)")
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{Path.cwd()}")
    [entry] = (tmp_path / "cache" / "code").iterdir()
    known = unpack_entry(entry.read_bytes(), entry.stem)
    assert known is not None
    entry.write_bytes(pack_entry(replace(known, op_libraries=("ops_that_hang",))))
    order = replace(order_of(mean_price_tower(seed=3), tmp_path), call_limit_s=20)
    made = package_tower(order, cache, StageClock("user", ignore_stages))
    assert made.origin.code == "cold"
    assert "took more than 20 s and was ended" in made.origin.note
