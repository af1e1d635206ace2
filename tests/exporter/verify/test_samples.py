"""Sample requests are cases that the gate has passed, with eager's answers."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from exporter.pipeline.samples import SampleKeeper, WrittenSamples, find_altered_samples
from exporter.samples.entry import input_key, output_key
from exporter.spec import TowerName
from exporter.stages import no_progress
from exporter.towers.tower import Tower
from exporter.verify.cases import Cases
from exporter.verify.gate import verify_tower
from exporter.verify.reload import Link
from exporter.verify.runnable_tower import RunnableTower
from tests.exporter.verify.conftest import batch

BATCHES = [
    batch("batch_1", 3),
    batch("one_event", 1),
    batch("batch_2", 2, 1),
    batch("batch_4", 2, 0, 1, 7),
    batch("batch_32", *[5] * 32),
]


@pytest.fixture
def runnable(tower: Tower, chain: Sequence[Link], tmp_path: Path) -> RunnableTower:
    device = torch.device("cpu")
    return RunnableTower(tower=tower, chain=chain, op_libraries=(), scratch=tmp_path, device=device)


def keep(runnable: RunnableTower, most_rows: int) -> SampleKeeper:
    keeper = SampleKeeper(most_rows=most_rows)
    verify_tower(runnable, Cases(must_agree=BATCHES, must_be_refused=()), no_progress, keeper.keep)
    return keeper


@pytest.fixture
def written(runnable: RunnableTower, tmp_path: Path) -> WrittenSamples:
    found = keep(runnable, 7).write(TowerName.USER, tmp_path)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("most_rows", "kept"),
    [(0, []), (1, ["batch_1"]), (3, ["batch_1", "batch_2"]), (7, ["batch_1", "batch_4"])],
)
def test_the_smallest_and_the_largest_that_is_wanted_are_kept(
    most_rows: int, kept: list[str], runnable: RunnableTower
) -> None:
    assert [sample.case.name for sample in keep(runnable, most_rows).choose()] == kept


def test_nothing_is_written_where_nothing_is_wanted(runnable: RunnableTower, tmp_path: Path) -> None:
    assert keep(runnable, 0).write(TowerName.USER, tmp_path) is None


def test_the_file_holds_the_requests_and_eagers_answers(
    written: WrittenSamples, runnable: RunnableTower
) -> None:
    tensors = load_file(written.file)
    for case in (BATCHES[0], BATCHES[3]):
        answer = runnable.run_eager(case.inputs)
        for name, tensor in case.inputs.items():
            assert torch.equal(tensors.pop(input_key(case.name, name)), tensor)
        for name, tensor in answer.items():
            assert torch.equal(tensors.pop(output_key(case.name, name)), tensor)
    assert not tensors


def test_an_answer_may_differ_by_as_much_as_the_gate_allows(
    written: WrittenSamples, runnable: RunnableTower
) -> None:
    scale = runnable.run_eager(BATCHES[-1].inputs)["embedding"].abs().max()  # of the largest batch
    first = written.entry.cases[0]
    assert first.sizes == {"seq_clicks": 3, "batch": 1}
    assert first.allowed["embedding"] >= runnable.tolerance * float(scale)


def test_what_was_written_is_what_the_gate_had(written: WrittenSamples) -> None:
    assert list(find_altered_samples(written.entry, written)) == []


def test_a_bit_that_differs_in_the_file_is_found(written: WrittenSamples) -> None:
    tensors = load_file(written.file)
    key = input_key("batch_4", "clicks.values")
    tensors[key][0] ^= 1
    save_file(tensors, written.file)
    assert list(find_altered_samples(written.entry, written)) == [f"{key} is not what the gate has compared"]


def test_a_case_that_the_gate_had_otherwise_is_found(written: WrittenSamples) -> None:
    looser = replace_allowed(written, 1.0)
    assert list(find_altered_samples(looser.entry, written)) == [
        "the cases are not those that the gate has passed"
    ]


def replace_allowed(written: WrittenSamples, allowed: float) -> WrittenSamples:
    cases = tuple(case.model_copy(update={"allowed": {"embedding": allowed}}) for case in written.entry.cases)
    return replace(written, entry=written.entry.model_copy(update={"cases": cases}))
