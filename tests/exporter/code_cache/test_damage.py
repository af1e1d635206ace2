"""No single flipped bit of an entry of the code cache gives other code than was kept."""

import random

import torch

from exporter.code_cache.entry import pack_entry, unpack_entry
from tests.exporter.code_cache.test_cache import code_of


def test_a_flipped_bit_of_an_entry_is_a_miss_or_changes_nothing() -> None:
    kept, draw = code_of("f1"), random.Random(0)
    packed, misses = pack_entry(kept), 0
    for _ in range(1000):
        damaged = bytearray(packed)
        damaged[draw.randrange(len(packed))] ^= 1 << draw.randrange(8)
        found = unpack_entry(bytes(damaged), "f1")
        if found is None:
            misses += 1
            continue
        assert (found.code.files, found.state, found.outputs, found.op_libraries) == (
            kept.code.files,
            kept.state,
            kept.outputs,
            kept.op_libraries,
        )
        assert torch.equal(found.code.values["steps"], kept.code.values["steps"])
    assert misses > 800
