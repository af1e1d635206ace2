"""The gate refuses packages whose inputs and outputs are not as described; calls need no lock of Python's."""

import platform
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from exporter.aoti.load import load_package
from exporter.aoti.native_call import can_call_natively
from exporter.manifest import TensorEntry
from exporter.stages import no_progress
from exporter.towers.tower import Tower
from exporter.verify.checks.leaks import is_leak
from exporter.verify.errors import InterfaceBroken
from exporter.verify.gate import verify_tower
from exporter.verify.reload import Link
from exporter.verify.runnable_tower import RunnableTower
from tests.exporter.verify.conftest import batch, clicks
from tests.exporter.verify.test_gate import agreeing, runnable_of

EMBEDDING = TensorEntry(name="embedding", dtype="float32", shape=("batch", 8))
CASES = agreeing(batch("batch_1", 3), batch("batch_3", 2, 0, 4))

Change = Callable[[RunnableTower], RunnableTower]


def in_another_order(runnable: RunnableTower) -> RunnableTower:
    [link] = runnable.chain
    first, second, *others = link.order
    return replace(runnable, chain=[link.model_copy(update={"order": (second, first, *others)})])


def described_as(entry: TensorEntry) -> Change:
    return lambda runnable: replace(runnable, outputs=(entry,))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (in_another_order, "its input 1 is clicks.values, and the manifest says clicks.lengths"),
        (described_as(EMBEDDING.model_copy(update={"name": "score"})), "the outputs are embedding, and"),
        (described_as(EMBEDDING.model_copy(update={"dtype": "float64"})), "embedding is float32, and"),
        (described_as(EMBEDDING.model_copy(update={"shape": ("batch", 9)})), r"shape \[3, 8\], and"),
    ],
    ids=["order", "name", "dtype", "shape"],
)
def test_what_is_not_as_described_is_refused(
    change: Change, said: str, tower: Tower, chain: list[Link], tmp_path: Path
) -> None:
    runnable = change(runnable_of(tower, chain, tmp_path))
    with pytest.raises(InterfaceBroken, match=f"batch_3 .*: .*{said}"):
        verify_tower(runnable, CASES, no_progress)


def test_a_sound_package_is_as_described(tower: Tower, chain: list[Link], tmp_path: Path) -> None:
    runnable = described_as(EMBEDDING)(runnable_of(tower, chain, tmp_path))
    assert verify_tower(runnable, CASES, no_progress).largest_difference >= 0


def test_no_sound_package_is_ever_said_to_leak(tower: Tower, chain: list[Link], tmp_path: Path) -> None:
    """Fifty times, each in another state of the process."""
    inputs = clicks(3, 1)
    with runnable_of(tower, chain, tmp_path).make_runner() as runner:
        for _ in range(50):
            growth = runner.observe("growth", inputs, inputs).growth
            assert growth is not None
            assert [name for name, more in growth.per_call.items() if is_leak(name, more)] == [], growth


@pytest.mark.skipif(platform.machine() != "x86_64", reason="results are returned in another way")
def test_a_call_without_the_lock_gives_the_same(chain: list[Link]) -> None:
    assert can_call_natively()
    [link] = chain
    package = load_package(link.package, torch.device("cpu"), runners=2)
    inputs = {name: clicks(3, 0, 4)[name] for name in link.order}
    for _ in range(20):
        outputs = package.call_unlocked(inputs)
        assert list(outputs) == ["embedding"]
        assert torch.equal(outputs["embedding"], package(inputs)["embedding"])
