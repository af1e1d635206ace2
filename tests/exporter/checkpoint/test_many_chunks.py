"""Metadata of very many chunks is read in little time, or refused in words that say what to do."""

import itertools
import pickle
import pickletools
from pathlib import Path

import numpy as np
import pytest
import torch

from benchmarks.attacks.metadata import write
from exporter.checkpoint import dcp_metadata, pickle_bombs
from exporter.checkpoint.dcp_metadata import Chunk, read_metadata
from exporter.errors import CheckpointUnreadable

Box = tuple[tuple[int, ...], tuple[int, ...]]  # offset and size


def partition(generator: np.random.Generator, offset: tuple[int, ...], size: tuple[int, ...]) -> list[Box]:
    """Cut a box at random places along random axes, again and again."""
    axis = int(generator.integers(len(size)))
    if generator.random() < 0.3 or size[axis] < 2:
        return [(offset, size)]
    at = int(generator.integers(1, size[axis]))
    low, high = list(size), list(size)
    low[axis], high[axis] = at, size[axis] - at
    moved = tuple(start + at * (number == axis) for number, start in enumerate(offset))
    return [*partition(generator, offset, tuple(low)), *partition(generator, moved, tuple(high))]


def covers_once(shape: tuple[int, ...], boxes: list[Box]) -> bool:
    """Count every element."""
    counted = np.zeros(shape, dtype=np.int64)
    for offset, size in boxes:
        counted[tuple(slice(start, start + length) for start, length in zip(offset, size, strict=True))] += 1
    return bool((counted == 1).all())


def judge(shape: tuple[int, ...], boxes: list[Box]) -> bool:
    chunks = [Chunk(offset=offset, size=size, file="f", start=0, length=0) for offset, size in boxes]
    try:
        dcp_metadata._check_cover("t", shape, chunks)
    except dcp_metadata._ImpossibleTensor:
        return False
    return True


@pytest.mark.parametrize("axes", [1, 2, 3, 4])
def test_a_cover_is_judged_as_counting_every_element_does(axes: int) -> None:
    generator = np.random.default_rng(axes)
    judged = {True: 0, False: 0}
    for _ in range(300):
        shape = tuple(int(size) for size in generator.integers(1, 7, axes))
        boxes = partition(generator, (0,) * axes, shape)
        if generator.random() < 0.5:  # one of them elsewhere, mostly over another
            victim = int(generator.integers(len(boxes)))
            _, size = boxes[victim]
            room = [whole - length for whole, length in zip(shape, size, strict=True)]
            boxes[victim] = tuple(int(generator.integers(most + 1)) for most in room), size
        expected = covers_once(shape, boxes)
        assert judge(shape, boxes) is expected, (shape, boxes)
        judged[expected] += 1
    assert min(judged.values()) > 20


def test_a_grid_with_one_chunk_moved_is_refused(tmp_path: Path) -> None:
    boxes: list[Box] = [((row, column), (1, 1)) for row, column in itertools.product(range(60), range(60))]
    assert judge((60, 60), boxes)
    boxes[7] = (59, 59), (1, 1)
    assert not judge((60, 60), boxes)


def test_a_scalar_has_one_chunk() -> None:
    assert judge((), [((), ())])
    assert not judge((), [((), ()), ((), ())])
    assert judge((0, 3), [])


@pytest.mark.parametrize(
    ("limit", "message"),
    [("MOST_CHUNKS", "200 chunks, of at most 50"), ("MOST_TENSORS", "100 tensors, of at most 50")],
)
def test_too_many_chunks_or_tensors_are_counted_in_the_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str, message: str
) -> None:
    write(tmp_path / ".metadata", 100, 2, 1)
    assert len(read_metadata(tmp_path / ".metadata")) == 100
    monkeypatch.setattr(dcp_metadata, limit, 50)
    with pytest.raises(CheckpointUnreadable, match=f"describes more than is read: {message}") as caught:
        read_metadata(tmp_path / ".metadata")
    assert "fewer ranks" in caught.value.hint


def test_the_limits_on_instructions_have_room_for_the_most_chunks(tmp_path: Path) -> None:
    write(tmp_path / ".metadata", 10, 10, 10)
    data = (tmp_path / ".metadata").read_bytes()
    instructions = sum(1 for _ in pickletools.genops(data)) / 1000
    assert instructions * dcp_metadata.MOST_CHUNKS < pickle_bombs.MOST_INSTRUCTIONS


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_pickles_of_every_protocol_are_scanned_to_their_end(protocol: int) -> None:
    shared = [
        torch.Size([1, 2]),
        "ü" * 300,
        b"x" * 300,
        1 << 70,
        -5,
        1.5,
        None,
        True,
        {"a": {1}},
        (1, 2, 3, 4),
    ]
    data = pickle.dumps([shared, shared, frozenset({7}), bytearray(b"y")], protocol)
    pickle_bombs.refuse_bombs(data)
    for end in range(1, len(data)):
        with pytest.raises((ValueError, IndexError, KeyError)):
            pickle_bombs.refuse_bombs(data[:end])
