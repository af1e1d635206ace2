"""Ranking models survive torch.export and AOTInductor, at sizes they were not traced with."""

from typing import NamedTuple

import pytest
import torch

from exporter.aoti.torch_loader import Package
from exporter.config.schema import PipelineConfig
from exporter.spec import TowerName
from exporter.towers.tower import Tower
from exporter.towers.view import training_tower
from exporter.trace.trace_tower import trace_tower
from exporter.verify.numerics import measure_scales
from tests.compiled_package import compile_package
from tests.exporter.models.ranking_variants import interleaved, without_actions
from tests.exporter.models.recorded import Batch, random_inputs, require_close, untrained

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:_check_is_size will be removed:FutureWarning"),  # fbgemm calls it
]

SIZES = [
    ([5], [1]),
    ([0], [1]),
    ([3], [0]),
    ([0, 0], [2, 1]),
    ([7, 0], [0, 3]),
    ([3] * 7, [0] * 7),
    ([0] * 4, [0] * 4),
    ([200, 2, 0] + [11] * 29, [1, 40, 3] + [2] * 29),
]


class Compiled(NamedTuple):
    """A tower, its package, and the scale of each output in the largest batch; see `usual_scales`."""

    tower: Tower
    package: Package
    usual: dict[str, float]


def eager(tower: Tower, inputs: Batch) -> Batch:
    with torch.no_grad():
        outputs: Batch = tower.module(inputs)
    return outputs


def traceable(tower: Tower) -> Batch:
    """Inputs for 7 rows, in which no two sizes coincide."""
    inputs = random_inputs(tower, [3, 9, 5, 0, 4, 2, 6], [2, 1, 0, 3, 4, 5, 4])
    multivalued = [feature for feature in tower.config.pipeline.features if feature.is_multivalued]
    for number, feature in enumerate(multivalued):
        inputs[f"{feature.name}.lengths"][0] = 31 + number
        inputs[f"{feature.name}.values"] = torch.zeros(37 + number, dtype=torch.long)
    return inputs


@pytest.fixture(scope="module", params=[interleaved, without_actions], ids=lambda variant: variant.__name__)
def compiled(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Compiled:
    """Compile each variant once for all tests of this file."""
    pipeline: PipelineConfig = request.param()
    tower = untrained(training_tower(pipeline, TowerName.MODEL))
    program = trace_tower(tower, traceable(tower), torch.device("cpu"))
    package = Package(compile_package(program, tmp_path_factory.mktemp("ranking") / "aoti_model.pt2"))
    return Compiled(tower, package, measure_scales(eager(tower, random_inputs(tower, *SIZES[-1]))))


@pytest.mark.parametrize(("history", "candidates"), SIZES, ids=lambda sizes: f"{len(sizes)}x{max(sizes)}")
def test_a_package_computes_what_eager_computes(
    compiled: Compiled, history: list[int], candidates: list[int]
) -> None:
    inputs = random_inputs(compiled.tower, history, candidates)
    require_close(compiled.package(inputs), eager(compiled.tower, inputs), compiled.usual)


def test_a_package_refuses_candidates_that_do_not_add_up(compiled: Compiled) -> None:
    inputs = random_inputs(compiled.tower, [3, 4], [2, 1])
    for name in ("video_id", "query_time"):
        inputs[f"cand_seq__{name}.lengths"][1] += 1
    with pytest.raises(RuntimeError, match="Expected u[0-9]+ <= 0 but received"):
        compiled.package(inputs)
