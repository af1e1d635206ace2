"""Only a package that computes what eager computes, and refuses what contradicts itself, passes."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.export import ExportedProgram

from exporter.data.rows import NamedBatch
from exporter.errors import OutOfMemory, PackageCrashed, PackageUnsteady, PromiseBroken, VerificationFailed
from exporter.lowering.errors import PrecisionLost
from exporter.lowering.lower_tower import Fp32Reference
from exporter.manifest import CaseKind, VerificationReport
from exporter.stages import no_progress
from exporter.towers.tower import Tower
from exporter.trace.trace_tower import trace_tower
from exporter.verify.cases import Cases
from exporter.verify.checks.check import Check, CheckResult, Trial
from exporter.verify.checks.steadiness import Steadiness
from exporter.verify.gate import verify_tower
from exporter.verify.reload import Link
from exporter.verify.runnable_tower import RunnableTower
from exporter.verify.runner import PackageRunner
from tests.compiled_package import compile_package
from tests.exporter.verify.conftest import Greedy, MeanPrice, batch, clicks, mean_price_tower

Greedily = tuple[Tower, list[Link]]


@pytest.fixture(scope="module")
def greedy(tmp_path_factory: pytest.TempPathFactory) -> Greedily:
    """A tower and its package, both of which take more memory than there is for many rows."""
    tower = replace(mean_price_tower(), module=Greedy(seed=0).eval())
    program = trace_tower(tower, clicks(3, 0, 4), torch.device("cpu"))
    package = compile_package(program, tmp_path_factory.mktemp("greedy") / "aoti_model.pt2")
    return tower, [Link(package=package, order=tuple(tensor.name for tensor in tower.plan.inputs))]


def agreeing(*cases: NamedBatch) -> Cases:
    return Cases(must_agree=cases, must_be_refused=())


def verify(
    tower: Tower,
    chain: list[Link],
    scratch: Path,
    agreeing: list[NamedBatch],
    contradicting: list[NamedBatch],
) -> VerificationReport:
    cases = Cases(must_agree=agreeing, must_be_refused=contradicting)
    return verify_tower(runnable_of(tower, chain, scratch), cases, no_progress)


def runnable_of(
    tower: Tower,
    chain: list[Link],
    scratch: Path,
    *,
    op_libraries: tuple[str, ...] = (),
    programs: Sequence[ExportedProgram] = (),
    fp32: Fp32Reference | None = None,
) -> RunnableTower:
    return RunnableTower(
        tower=tower,
        chain=chain,
        op_libraries=op_libraries,
        scratch=scratch,
        device=torch.device("cpu"),
        programs=programs,
        fp32=fp32,
    )


def test_a_faithful_package_passes_at_every_size(tower: Tower, chain: list[Link], tmp_path: Path) -> None:
    agreeing = [
        batch("one_row", 3),
        batch("one_event", 1),
        batch("empty", 0),
        batch("batch_2", 2, 1),
        batch("batch_3", 2, 0, 1),
        batch("batch_32", *[5] * 32),
        batch("batch_64", *[10] * 64),
    ]
    report = verify(tower, chain, tmp_path, agreeing, [])
    assert [case.name for case in report.cases] == [case.name for case in agreeing]
    assert report.largest_difference < 1e-5
    assert [timed.batch for timed in report.latency] == [2, 32, 64]


def test_another_models_package_fails_at_the_first_case(chain: list[Link], tmp_path: Path) -> None:
    with pytest.raises(VerificationFailed, match=r"one_row \(seq_clicks=3, batch=1\): embedding differs by"):
        verify(mean_price_tower(seed=1), chain, tmp_path, [batch("one_row", 3)], [])


def test_contradicting_inputs_are_refused(tower: Tower, chain: list[Link], tmp_path: Path) -> None:
    short = clicks(3, 4)
    short["price.values"] = short["price.values"][:-1]
    wrong_sum = clicks(3, 4)
    wrong_sum["clicks.lengths"] = torch.tensor([3, 5])
    contradicting = [NamedBatch(name="short", inputs=short), NamedBatch(name="wrong_sum", inputs=wrong_sum)]
    report = verify(tower, chain, tmp_path, [batch("one_row", 3)], contradicting)
    assert [(case.kind, case.passed) for case in report.cases[1:]] == [(CaseKind.REFUSES, True)] * 2


def test_inputs_that_are_computed_although_they_should_be_refused_fail(
    tower: Tower, chain: list[Link], tmp_path: Path
) -> None:
    with pytest.raises(VerificationFailed, match="was computed instead of refused"):
        verify(tower, chain, tmp_path, [batch("one_row", 3)], [batch("sound", 2, 2)])


def test_memory_that_ran_out_is_no_refusal_and_names_the_case(greedy: Greedily, tmp_path: Path) -> None:
    tower, chain = greedy
    many = NamedBatch(name="many", inputs=clicks(*[1] * 64))
    with pytest.raises(OutOfMemory, match="user tower: many: the process running the package: ") as raised:
        verify(tower, chain, tmp_path, [batch("one_row", 3)], [many])
    assert raised.value.where == "many"
    with pytest.raises(OutOfMemory, match=r"many \(seq_clicks=64, batch=64\): .*DefaultCPUAllocator"):
        verify(tower, chain, tmp_path, [many], [])


def test_a_size_beyond_the_planned_bound_is_refused(tower: Tower, chain: list[Link], tmp_path: Path) -> None:
    with pytest.raises(VerificationFailed, match="batch=65"):
        verify(tower, chain, tmp_path, [batch("too_many", *[1] * 65)], [])


class Drawing(MeanPrice):
    """Adds random numbers that differ in every call."""

    def forward(self, inputs: dict[str, Tensor]) -> dict[str, Tensor]:
        embedding = super().forward(inputs)["embedding"]
        return {"embedding": embedding + torch.rand_like(embedding) * 0.01}


def test_an_error_that_moves_between_two_runs_is_a_failure_of_its_own_kind(tmp_path: Path) -> None:
    tower = replace(mean_price_tower(), module=Drawing(seed=0).eval())
    program = trace_tower(tower, clicks(3, 0, 4), torch.device("cpu"))
    package = compile_package(program, tmp_path / "aoti_model.pt2")
    link = Link(package=package, order=tuple(tensor.name for tensor in tower.plan.inputs))
    with pytest.raises(PackageUnsteady, match="batch_2: embedding differs by .* between two runs"):
        verify(tower, [link], tmp_path, [batch("batch_2", 2, 1)], [])


_ANSWERS = """
import __main__
from itertools import chain, repeat

import torch
from torch import Tensor

answers = chain({answers}, repeat({answers}[-1]))
__main__.Chain.__call__ = lambda self, inputs: dict(embedding=torch.tensor([float(next(answers)), 1.0]))
"""


@pytest.mark.parametrize("poison", ["nan", "inf"])
def test_a_number_that_is_not_finite_in_one_of_several_runs_has_moved(
    tower: Tower, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, poison: str
) -> None:
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{Path.cwd()}")
    steadiness = Steadiness(runnable_of(tower, [], tmp_path))
    planted = [["1", "1", poison], [poison] * 3, ["1", "1.5", "1.2"]]
    moved: list[str] = []
    for number, answers in enumerate(planted):
        (tmp_path / f"ops_that_answer_{number}.py").write_text(_ANSWERS.format(answers=answers))
        runner = PackageRunner([], op_libraries=(f"ops_that_answer_{number}",), scratch=tmp_path)
        with runner:
            case = batch("batch_2", 2, 1)
            trial = Trial(runnable=steadiness.runnable, batch=case, runner=runner, repeats=2)
            moved.append(steadiness.run(trial).detail)
    assert moved == [
        "embedding: holds NaN or infinity in one of two runs on the same inputs",
        "",
        "embedding differs by 0.5 at scale 1 between two runs on the same inputs",
    ]


_ABORTS = """
import __main__
import os

call, called = __main__.Chain.__call__, []


def last_call(*given):
    called.append(given)
    return call(*given) if len(called) < {after} else os.abort()


__main__.Chain.__call__ = last_call
"""


@pytest.mark.parametrize("after", [1, 2, 3], ids=["comparing", "running twice", "timing"])
def test_a_crash_names_its_case_and_the_sizes(
    tower: Tower, chain: list[Link], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: int
) -> None:
    (tmp_path / "ops_that_abort.py").write_text(_ABORTS.format(after=after))
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{Path.cwd()}")
    runnable = runnable_of(tower, chain, tmp_path, op_libraries=("ops_that_abort",))
    with pytest.raises(PackageCrashed, match=r"batch_2 \(seq_clicks=3, batch=2\): .*status -6") as crash:
        verify_tower(runnable, agreeing(batch("batch_2", 2, 1)), no_progress)
    assert crash.value.where == "batch_2"


def test_a_program_that_breaks_its_promises_does_not_reach_the_package(tower: Tower, tmp_path: Path) -> None:
    program = trace_tower(tower, clicks(3, 0, 4), torch.device("cpu"))
    [node] = [node for node in program.graph.nodes if node.name == "mul"]
    node.meta["val"] = node.meta["val"].double()
    runnable = runnable_of(tower, [], tmp_path, programs=[program])
    with pytest.raises(PromiseBroken, match="batch_1: node mul = aten.mul.Tensor .*dtype is torch.float32"):
        verify_tower(runnable, agreeing(batch("batch_1", 3)), no_progress)


def test_one_package_serves_every_size_where_nothing_could_be_compiled(
    tower: Tower, chain: list[Link], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CXX", "/bin/false")
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "compiled"))
    before = [link.package.read_bytes() for link in chain]
    sizes = [batch(f"rows_{rows}", *[length] * rows) for rows in (1, 2, 17, 64) for length in (0, 1, 10)]
    report = verify(tower, chain, tmp_path, sizes, [])
    assert all(case.passed for case in report.cases) and len(report.cases) == 12
    assert not (tmp_path / "compiled").exists() and [link.package.read_bytes() for link in chain] == before


def reference_of(seed: int, tolerance: float) -> Fp32Reference:
    """A model in fp32, which the package is compared with besides eager."""
    return Fp32Reference(
        module=mean_price_tower(seed).module, device=torch.device("cpu"), tolerance=tolerance
    )


def test_the_difference_from_fp32_is_told_by_output(tower: Tower, chain: list[Link], tmp_path: Path) -> None:
    runnable = runnable_of(tower, chain, tmp_path, fp32=reference_of(seed=1, tolerance=5.0))
    cases = agreeing(batch("empty", 0), batch("batch_2", 2, 1), batch("batch_3", 2, 0, 1))
    report = verify_tower(runnable, cases, no_progress)
    assert report.largest_difference < 1e-5
    assert report.fp32 is not None and report.fp32.tolerance == 5.0
    [worst] = report.fp32.outputs
    assert worst.output == "embedding" and worst.case in {"batch_2", "batch_3"}
    assert 0.1 < worst.relative == worst.largest / worst.scale < 5.0


def test_a_package_too_far_from_fp32_does_not_pass(tower: Tower, chain: list[Link], tmp_path: Path) -> None:
    runnable = runnable_of(tower, chain, tmp_path, fp32=reference_of(seed=1, tolerance=1e-3))
    with pytest.raises(PrecisionLost, match=r"user tower: one_row: embedding differs by .* allowed 0\.001"):
        verify_tower(runnable, agreeing(batch("one_row", 3)), no_progress)


class Unfulfillable(Check):
    name = title = "unfulfillable"
    needs_packages = False

    def select(self, cases: Cases) -> Sequence[NamedBatch]:
        return cases.must_agree

    def run(self, trial: Trial) -> CheckResult:
        return CheckResult(passed=False, detail="nothing passes this")


def test_a_check_that_fails_without_a_report_ends_the_verification(
    tower: Tower, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("exporter.verify.gate.CHECKS", (Unfulfillable,))
    said = r"user tower: one_row \(seq_clicks=3, batch=1\): nothing passes this"
    with pytest.raises(VerificationFailed, match=said) as raised:
        verify_tower(runnable_of(tower, [], tmp_path), agreeing(batch("one_row", 3)), no_progress)
    assert raised.value.where == "one_row"


def test_lighter_cases_take_the_place_of_a_batch_that_would_take_too_long(
    tower: Tower, chain: list[Link], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small, heavy = [batch("batch_2", 2, 1), batch("batch_32", *[5] * 32)], batch("batch_64", *[10] * 64)
    many = NamedBatch(name="batch_64", inputs=clicks(*[1] * 64), note="short")
    shares: list[float] = []

    def make_lighter(share: float) -> list[NamedBatch]:
        shares.append(share)
        return [batch("batch_40", *[10] * 40), many]

    cases = replace(agreeing(*small, heavy, batch("empty", 0)), make_lighter=make_lighter)
    runnable = runnable_of(tower, chain, tmp_path)
    report = verify_tower(runnable, cases, no_progress)
    assert shares == [] and [case.sizes["seq_clicks"] for case in report.cases] == [3, 160, 640, 0]
    for limit in ("_LARGEST_S", "_LIGHTER_S"):
        monkeypatch.setattr(f"exporter.verify.gate.{limit}", 1e-9)
    report = verify_tower(runnable, cases, no_progress)
    assert [case.name for case in report.cases] == ["batch_2", "batch_32", "batch_40", "batch_64", "empty"]
    assert report.cases[3].sizes == {"seq_clicks": 64, "batch": 64} and report.cases[3].detail == "short"
    assert [timed.batch for timed in report.latency] == [2, 32, 64] and 0 < shares[0] < 0.01


class Counting(MeanPrice):
    """Counts its calls by the number of rows."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.calls: list[int] = []

    def forward(self, inputs: dict[str, Tensor]) -> dict[str, Tensor]:
        self.calls.append(len(inputs["clicks.lengths"]))
        return super().forward(inputs)


def test_eager_runs_once_in_a_case_that_is_not_timed(
    tower: Tower, chain: list[Link], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("exporter.verify.checks.latency.REPEATS_LIMIT_S", 0.0)
    eager, reference = Counting(seed=0).eval(), Counting(seed=0).eval()
    fp32 = Fp32Reference(module=reference, device=torch.device("cpu"), tolerance=1e-3)
    runnable = runnable_of(replace(tower, module=eager), chain, tmp_path, fp32=fp32)
    sizes = (1, 2, 3, 7, 32, 40)
    cases = agreeing(*(batch(f"batch_{rows}", *[3] * rows) for rows in sizes), batch("others", *[3] * 9))
    verify_tower(runnable, cases, no_progress)
    assert sorted(eager.calls) == [1, 2, 3, 7, 9, 32, 40]
    assert sorted(reference.calls) == [1, 2, 3, 7, 9, 32, 40]


class Limited(MeanPrice):
    """Computes histories of up to three events, and ends otherwise for longer ones."""

    def __init__(self, ending: str) -> None:
        super().__init__(seed=0)
        self.ending = ending

    def forward(self, inputs: dict[str, Tensor]) -> dict[str, Tensor]:
        outputs = super().forward(inputs)
        if int(inputs["clicks.lengths"].max()) <= 3:
            return outputs
        if self.ending == "memory":
            raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes.")
        if self.ending == "error":
            raise KeyError(4)
        return {name: value * torch.nan for name, value in outputs.items()}


@pytest.mark.parametrize("ending", ["error", "memory", "nan"])
def test_rows_beyond_real_ones_that_eager_does_not_compute_are_no_case(
    ending: str, tower: Tower, chain: list[Link], tmp_path: Path
) -> None:
    runnable = runnable_of(replace(tower, module=Limited(ending).eval()), chain, tmp_path)
    real, longer = [batch("batch_2", 2, 1), batch("batch_3", 3, 0, 2)], batch("low_counts", 3, 4)
    beyond = replace(longer, beyond_rows=True)
    report = verify_tower(runnable, agreeing(*real, beyond, batch("empty", 0)), no_progress)
    assert [case.name for case in report.cases] == ["batch_2", "batch_3", "empty"]
    with pytest.raises((KeyError, OutOfMemory, VerificationFailed)):
        verify_tower(runnable, agreeing(*real, longer), no_progress)


def test_packages_that_run_out_of_memory_where_eager_does_are_no_case(
    greedy: Greedily, tmp_path: Path
) -> None:
    tower, chain = greedy
    many = NamedBatch(name="full_batch", inputs=clicks(*[1] * 64), beyond_rows=True)
    report = verify(tower, chain, tmp_path, [batch("one_row", 3), many, batch("empty", 0)], [])
    assert [case.name for case in report.cases] == ["one_row", "empty"]


def test_packages_that_fail_beyond_real_rows_where_eager_computes_them_are_refused(
    chain: list[Link], tmp_path: Path
) -> None:
    beyond = replace(batch("low_counts", 3, 4), beyond_rows=True)
    with pytest.raises(VerificationFailed, match="low_counts .*embedding differs by"):
        verify(mean_price_tower(seed=1), chain, tmp_path, [beyond], [])
