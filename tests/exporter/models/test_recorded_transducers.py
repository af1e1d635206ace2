"""What each stage of ultra_hstu's transducers, and of dlrm_hstu with fp16 tables, gave in TorchEasyRec.

A recording of a large batch has only its small tensors; every tensor that is there is compared.
"""

import re
from typing import Any

import pytest
import torch
from torch import Tensor

from exporter.models.hstu.sequence import EncoderSequence
from tests.exporter.models.recorded import FIXTURES, observe, read_batch, recorded_tower

MODELS = ("dlrm_hstu_fp16", "ultra_hstu")
RECORDED = [
    (model, path.name.removesuffix(".mid.safetensors"))
    for model in MODELS
    for path in sorted((FIXTURES / model / "outputs").glob("*.mid.safetensors"))
]
# Ours gives these in other pieces: events and candidates apart, and the whole stack's sequence.
OTHERWISE = re.compile(r"_(content|action)_encoder$|_stu_module\.[01]$")


def part_of_sequence(sequence: EncoderSequence, place: int) -> Tensor:
    """Return what TorchEasyRec's preprocessors return at a place of their tuple."""
    assert sequence.candidates is not None
    layout, candidates = sequence.layout, sequence.candidates
    return {
        3: layout.lengths,
        4: layout.offsets,
        5: sequence.timestamps,
        6: sequence.values,
        7: candidates.lengths,
    }[place]


def found_at(key: str, seen: dict[str, Any]) -> Tensor:
    """Return our tensor under the recording's key: "module", "module.<place in a tuple>", "module[name]"."""
    if key.endswith("]"):
        module, _, name = key.removesuffix("]").partition("[")
        member: Tensor = seen[module][name]
        return member
    if key in seen:
        whole: Tensor = seen[key]
        return whole
    module, _, place = key.rpartition(".")
    output: Tensor | EncoderSequence = seen[module]
    if isinstance(output, EncoderSequence):
        return part_of_sequence(output, int(place))
    assert place == "0"
    return output


def test_all_recorded_batches_are_found() -> None:
    assert len(RECORDED) == 14


@pytest.mark.parametrize(("model", "batch"), RECORDED)
def test_stages_are_the_recorded_ones(model: str, batch: str) -> None:
    tower = recorded_tower(model, "model")
    recorded = {key.removeprefix("model."): value for key, value in read_batch(model, batch, "mid").items()}
    compared = [key for key in recorded if not OTHERWISE.search(key)]
    modules = {name for name, _ in tower.module.named_modules()}
    stages = {owner for key in compared for owner in (key, key.rpartition(".")[0], key.partition("[")[0])}
    seen = observe(tower, stages & modules - {"", "embedding_group"}, read_batch(model, batch, "in"))
    assert len(compared) >= 14
    found = {key: found_at(key, seen) for key in compared}
    expected = {key: recorded[key].to(value.dtype) for key, value in found.items()}
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
