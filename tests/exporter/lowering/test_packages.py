"""Towers of lower precision as packages: through the gate, alone and in two parts, cold and warm."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from zipfile import ZipFile

import pytest
import torch
from torch import Tensor, nn

from exporter.code_cache.cache import CodeCache, open_code_cache
from exporter.data.batch import contradicting_batches, trace_inputs, verification_batches
from exporter.data.rows import NamedBatch, Rows, read_rows
from exporter.dtypes import Precision, TableDtype
from exporter.lowering.errors import PrecisionLost
from exporter.lowering.lower_tower import LoweredTower, lower_tower
from exporter.options.tables import Tables
from exporter.packages.package_tower import Packaged, package_tower
from exporter.packages.parts import assemble_parts, compile_part, plan_parts, trace_parts
from exporter.packages.request import PackagingRequest
from exporter.spec import Mode
from exporter.stages import StageClock, no_progress
from exporter.verify.cases import Cases
from exporter.verify.gate import verify_tower
from exporter.verify.runnable_tower import RunnableTower
from tests.exporter.families.conftest import Weighted, WeightedFamily, blueprint_of
from tests.exporter.models.recorded import FIXTURES, load_recorded_weights, recorded_tower, untrained
from tests.exporter.stage_events import ignore_stages

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:_check_is_size will be removed:FutureWarning"),  # fbgemm calls it
]

CPU = torch.device("cpu")
Package = Callable[..., Packaged]


def item_rows() -> Rows:
    features = recorded_tower("hstu_match", "item").config.pipeline.features
    return read_rows(str(FIXTURES / "data" / "items.parquet"), features)


def lowered_item_tower(
    tables: Tables, precision: Precision, *, trained: bool = True, tolerance: float | None = None
) -> LoweredTower:
    config = recorded_tower("hstu_match", "item").config
    tower = untrained(replace(config, options=replace(config.options, tables=tables, precision=precision)))
    if trained:
        load_recorded_weights(tower.module, "hstu_match")
    return lower_tower(tower, CPU, tolerance=tolerance)


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> CodeCache:
    return open_code_cache(str(tmp_path_factory.mktemp("cache")))


@pytest.fixture
def package(cache: CodeCache, tmp_path: Path) -> Package:
    """A lowered item tower's packages, verified."""

    def package(lowered: LoweredTower, mode: Mode = Mode.UNIFIED) -> Packaged:
        rows, plan = item_rows(), lowered.tower.plan
        order = PackagingRequest(
            tower=lowered.tower,
            parts=plan_parts(lowered.tower, mode, max_batch_size=64),
            inputs=trace_inputs(rows, plan),
            make_cases=lambda: Cases(
                must_agree=list(verification_batches(rows, plan)),
                must_be_refused=list(contradicting_batches(rows, plan)),
            ),
            device=CPU,
            folder=tmp_path,
            fp32=lowered.fp32,
        )
        return package_tower(order, cache, StageClock("item", ignore_stages))

    return package


@pytest.mark.parametrize(
    ("dtype", "mode", "far"),
    [("fp16", "unified", 1e-3), ("int8", "unified", 1e-2), ("int4", "two_stage", 0.15)],
)
def test_a_package_computes_what_eager_does_with_the_same_tables(
    dtype: TableDtype, mode: Mode, far: float, package: Package
) -> None:
    lowered = lowered_item_tower(Tables(dtype=dtype), Precision.FP32)
    made = package(lowered, Mode(mode))
    assert made.report.tolerance == 1e-5
    assert made.report.fp32 is not None
    [output] = made.report.fp32.outputs
    assert 0 < output.relative < far < made.report.fp32.tolerance
    weights = lowered.tower.module.state_dict().values()
    assert weight_bytes(made.parts[0].package.path) <= sum(each.nbytes + 64 for each in weights)


def weight_bytes(package: Path) -> int:
    with ZipFile(package) as archive:
        return sum(entry.file_size for entry in archive.infolist() if entry.filename.endswith(".blob"))


def test_other_weights_go_into_the_same_code(package: Package) -> None:
    """Which is not dropped where precision is lost: that is no fault of the code."""
    asked = Tables(dtype=TableDtype.INT8)
    package(lowered_item_tower(asked, Precision.FP32))
    with pytest.raises(PrecisionLost, match="allowed 1e-06 of it"):
        package(lowered_item_tower(asked, Precision.FP32, tolerance=1e-6))
    made = package(lowered_item_tower(asked, Precision.FP32, trained=False))
    assert (made.origin.code, made.origin.reused) == ("warm", "request")


class Multiplied(Weighted):
    """With a product that autocast takes for one."""

    def __init__(self) -> None:
        super().__init__()
        self.factor = nn.Parameter(torch.tensor([[1.1]]))

    def compute(self, embedded: dict[str, Tensor]) -> dict[str, Tensor]:
        return super().compute({**embedded, "rows": embedded["rows"] @ self.factor})


def weighted_inputs(rows: int) -> dict[str, Tensor]:
    counts = torch.arange(rows) % 4
    total = int(counts.sum())
    return {
        "ids": torch.arange(total) % 9,
        "weights": torch.linspace(1, 2, total).unsqueeze(1),
        "counts": counts,
    }


def test_a_family_of_ones_own_computes_under_autocast(tmp_path: Path) -> None:
    tower = blueprint_of(WeightedFamily(Multiplied())).build()
    options = replace(tower.config.options, precision=Precision.BF16)
    lowered = lower_tower(replace(tower, config=replace(tower.config, options=options)), CPU)
    traced = trace_parts(plan_parts(lowered.tower, Mode.UNIFIED, max_batch_size=16), weighted_inputs(5), CPU)
    chain = [
        part.link for part in assemble_parts([compile_part(each, "unused") for each in traced], tmp_path)
    ]
    assert lowered.fp32 is not None
    runnable = RunnableTower(
        tower=lowered.tower,
        chain=chain,
        op_libraries=(),
        scratch=tmp_path,
        device=CPU,
        programs=[each.program for each in traced],
        fp32=lowered.fp32,
    )
    cases = [NamedBatch(name=f"batch_{rows}", inputs=weighted_inputs(rows)) for rows in (1, 3, 7, 16)]
    report = verify_tower(runnable, Cases(must_agree=cases, must_be_refused=[]), no_progress)
    assert report.run_by_node == ("batch_1", "batch_7") and report.fp32 is not None
    [output] = report.fp32.outputs
    assert 1e-4 < output.relative < report.tolerance == 0.04
