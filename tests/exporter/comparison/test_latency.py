"""Two towers in one process, called in turn: which is slower, and how surely."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from exporter.comparison.latency import CONFIDENCE, PairRunner, estimate_ratio
from exporter.comparison.pair_process import CallRequest, PairReply, PairSetup, RoundsRequest
from exporter.dims.plan import DimPlan
from exporter.errors import InvalidArtifact, PackageCrashed
from exporter.serving.downloaded_tower import DownloadedTower
from exporter.spec import TowerName
from exporter.verify.reload import Link
from exporter.verify.runner_process import make_server
from tests.compiled_package import compile_package
from tests.jobs.factories import make_entry, make_manifest
from tests.shared import fill_once


class Product(nn.Module):
    """One product of matrices, whose time grows with the rows."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(256, 256))

    def forward(self, inputs: dict[str, Tensor]) -> dict[str, Tensor]:
        return {"y": inputs["rows"] @ self.weight}


@pytest.fixture(scope="session")
def product(run_folder: Path) -> DownloadedTower:
    def package(folder: Path) -> None:
        dims = ({"rows": {0: torch.export.Dim("batch", min=1, max=4096)}},)
        program = torch.export.export(Product(), ({"rows": torch.ones(7, 256)},), dynamic_shapes=dims)
        compile_package(program, folder / "aoti_model.pt2")

    path = fill_once(run_folder, "product", package) / "aoti_model.pt2"
    return downloaded(path)


def downloaded(package: Path) -> DownloadedTower:
    entry = make_entry(TowerName.MODEL)
    return DownloadedTower(
        manifest=make_manifest("job1", entry),
        entry=entry,
        chain=(Link(package=package, order=("rows",)),),
        features=(),
        plan=DimPlan(inputs=(), dims=()),
        root=Path(),
    )


def test_a_server_starts_the_process_of_a_pair(
    product: DownloadedTower, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with make_server() as server:
        monkeypatch.setattr("subprocess.Popen", None)
        with PairRunner(product, product, scratch=tmp_path, server=server) as pair:
            assert pair.run(1, {"rows": torch.ones(2, 256)})["y"].tolist() == [[256.0] * 256] * 2


@pytest.fixture(scope="module")
def pair(product: DownloadedTower, tmp_path_factory: pytest.TempPathFactory) -> Iterator[PairRunner]:
    with PairRunner(product, product, scratch=tmp_path_factory.mktemp("pair")) as pair:
        yield pair


def rows(number: int) -> dict[str, Tensor]:
    return {"rows": torch.ones(number, 256)}


def test_the_side_that_does_a_thousand_times_the_work_is_slower(pair: PairRunner) -> None:
    slower = pair.compare(rows(2), rows(2048), batch=2048, seconds=0.5)
    faster = pair.compare(rows(2048), rows(2), batch=2048, seconds=0.5)
    assert slower.is_above(1.25) is True
    assert faster.is_above(1.25) is False
    assert slower.rounds >= 2 and slower.new_ms > slower.old_ms > 0


def test_inputs_that_a_package_refuses_are_one_error_and_the_next_call_works(pair: PairRunner) -> None:
    with pytest.raises(InvalidArtifact, match="refused inputs"):
        pair.compare(rows(2), {"rows": torch.ones(2, 255)}, batch=2, seconds=0.1)
    assert pair.compare(rows(2), rows(2), batch=2, seconds=0.1).batch == 2


def test_a_file_that_is_no_package_ends_the_process_with_its_last_words(tmp_path: Path) -> None:
    broken = tmp_path / "aoti_model.pt2"
    broken.write_bytes(b"not a zip")
    pair = PairRunner(downloaded(broken), downloaded(broken), scratch=tmp_path)
    with pytest.raises(PackageCrashed, match="is not a package"):
        pair.__enter__()
    assert list(tmp_path.iterdir()) == [broken]


@pytest.mark.parametrize("factor", [1.0, 1.25])
def test_the_interval_holds_the_ratio_of_calls_on_a_machine_with_bursts_of_work(factor: float) -> None:
    generator = np.random.default_rng(7)
    held = 0
    for _ in range(50):
        busy = np.repeat(generator.choice([1.0, 1.6], size=30, p=[0.7, 0.3]), 10)  # disturbs both sides
        old, new = (busy * generator.lognormal(0, 0.1, 300) for _ in range(2))
        found = estimate_ratio(list(old), list(new * factor), batch=1)
        held += found.low <= factor <= found.high
        assert found.is_above(factor * 1.2) is False
        assert found.is_above(factor / 1.2) is True
        assert found.confidence == CONFIDENCE
    assert held >= 47  # 49.5 are expected


@pytest.mark.parametrize(
    ("rounds", "factor", "is_above"), [(9, 2.0, None), (10, 2.0, True), (10, 0.5, False), (100, 1.2, None)]
)
def test_few_calls_and_ratios_close_to_the_bound_are_left_open(
    rounds: int, factor: float, is_above: bool | None
) -> None:
    old, new = np.random.default_rng(3).lognormal(0, 0.2, (2, rounds))
    assert estimate_ratio(list(old), list(new * factor), batch=1).is_above(1.2) is is_above


class DrawnPair(PairRunner):
    """A pair whose times are drawn: bursts of other work slow both sides down, and calls scatter widely."""

    def __init__(self, product: DownloadedTower, scratch: Path, factor: float) -> None:
        super().__init__(product, product, scratch=scratch)
        self._drawn, self._factor = np.random.default_rng(5), factor
        self.asked: list[RoundsRequest] = []

    def _ask(self, request: PairSetup | CallRequest | RoundsRequest) -> PairReply:
        assert isinstance(request, RoundsRequest)
        self.asked.append(request)
        rounds = min(request.rounds, int(request.seconds * 1e3 / 2) + 1)
        busy = np.repeat(self._drawn.choice([1.0, 2.0], size=-(-rounds // 10)), 10)[:rounds]
        old, new = (busy * self._drawn.lognormal(0, 0.6, rounds) for _ in range(2))
        return PairReply(times_ms=(old.tolist(), (new * self._factor).tolist()))

    def _write(self, side: int, inputs: object) -> Path:
        return Path("inputs")


@pytest.mark.parametrize(("factor", "is_above"), [(1.25, True), (1.0, False), (1.15, None)])
def test_calls_go_on_until_the_bound_is_outside_the_interval(
    product: DownloadedTower, tmp_path: Path, factor: float, is_above: bool | None
) -> None:
    drawn = DrawnPair(product, tmp_path, factor)
    hasty = drawn.compare({}, {}, batch=1, seconds=0.2)
    found = drawn.compare({}, {}, batch=1, seconds=0.2, bound=1.15, patience_s=25.0)
    assert (hasty.is_above(1.15), found.is_above(1.15)) == (None, is_above)
    assert found.rounds > hasty.rounds
    spent_s = found.rounds * (found.old_ms + found.new_ms) / 1e3
    assert spent_s < 26 and (is_above is not None or spent_s > 10)
    assert [each.warm_up for each in drawn.asked].count(0) == len(drawn.asked) - 2  # both warmed up once
