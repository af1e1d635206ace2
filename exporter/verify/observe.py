"""Observe what single calls do not show: memory that calls keep, calls at once, and memory that calls share.

This runs in the process that has the packages loaded.
"""

import ctypes
import gc
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from threading import Barrier, BrokenBarrierError, Lock, Thread

import torch
from pydantic import BaseModel
from torch import Tensor

Tensors = dict[str, Tensor]
Call = Callable[[Tensors], Tensors]

THREADS = 2
_INTERVALS = 3  # a leak grows in each of them
_MOST_INTERVALS = 16  # while something grows: caches of the allocator fill slowly, but not for ever
_CALLS = 64  # of an interval, at most
_INTERVAL_S = 0.03
_FEWEST = 4
_OF_MEASURING = {"Python objects": 32, "bytes of memory": 512}  # that a measurement itself may leave
_ROUNDING = 1e-5
_PERTURB = -6  # M_PERTURB of glibc's mallopt
_FILLED_WITH = 0x7F  # in every byte: 3.4e38 in fp32, a number beyond all tables in int64
_BUSY_S = 0.08  # of processor time that each thread calls for: on a busy machine threads take turns
_AT_ONCE_S = 2.0  # at most


class Layout(BaseModel):
    """An output as a package returns it."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]


class Behaviour(BaseModel):
    """The behaviour of a call, beside its numbers."""

    outputs: tuple[Layout, ...]
    changed_inputs: tuple[str, ...]  # by the call
    changed_outputs: tuple[str, ...]  # of the call, by a later one
    wrong_if_spread: tuple[
        str, ...
    ] = ()  # outputs for inputs that do not lie one after the other, if not refused


class Growth(BaseModel):
    """The growth of each resource of the process per call: the least of several intervals of calls."""

    calls: int
    per_call: dict[str, float]
    moved: tuple[str, ...] = ()  # outputs of the last call that are not those of the first


class CallsAtOnce(BaseModel):
    """The number of calls that threads made at once, and how many differed from a call alone."""

    calls: int
    differing: int


def observe_call(call: Call, inputs: Tensors, others: Tensors, rounding: float = _ROUNDING) -> Behaviour:
    """Call once, and then with other inputs; find what the calls changed beside their own outputs.

    Outputs for inputs that lie otherwise may differ by `rounding` of an output's scale.
    """
    before = _copy(inputs)
    outputs = call(inputs)
    kept = _copy(outputs)
    call(others)
    changed_outputs = find_changed(kept, outputs)
    try:
        spread = call({name: _spread(value) for name, value in before.items()})
    except RuntimeError:  # as a package should
        spread = kept
    return Behaviour(
        outputs=tuple(
            Layout(
                name=name,
                dtype=str(value.dtype).removeprefix("torch."),
                shape=tuple(value.shape),
                strides=value.stride(),
            )
            for name, value in outputs.items()
        ),
        changed_inputs=find_changed(before, inputs),
        changed_outputs=changed_outputs,
        wrong_if_spread=tuple(name for name in kept if not is_close(kept[name], spread[name], rounding)),
    )


def _spread(tensor: Tensor) -> Tensor:
    """Return the tensor with its rows in every other place of memory."""
    return tensor.repeat_interleave(2, dim=0)[::2] if tensor.dim() else tensor


def measure_growth(call: Call, inputs: Tensors, rounding: float = _ROUNDING) -> Growth:
    """Call again and again, and measure what the process holds after each of several intervals.

    Outputs of the last call may differ from those of the first by `rounding` of their scale.
    """
    first = _copy(call(inputs))
    for _ in range(_FEWEST - 2):
        call(inputs)
    begun = time.perf_counter()
    call(inputs)
    seconds = time.perf_counter() - begun
    calls = min(_CALLS, max(_FEWEST, int(_INTERVAL_S / max(seconds, 1e-6))))
    found: list[dict[str, int]] = []
    growing: dict[str, float] = {}
    gc.freeze()  # the collector need not look at what is there before
    while len(found) <= _INTERVALS or (any(growing.values()) and len(found) <= _MOST_INTERVALS):
        for _ in range(calls):
            call(inputs)
        found.append(_resources())
        growing = _grow_always(found, calls)
    gc.unfreeze()
    last = call(inputs)
    return Growth(
        calls=_FEWEST + calls * len(found),
        per_call=growing,
        moved=tuple(name for name in first if not is_close(first[name], last[name], rounding)),
    )


def _grow_always(found: list[dict[str, int]], calls: int) -> dict[str, float]:
    """Return by how much each resource grew per call in the interval where it grew least; 0 if in none."""
    steps = [
        {name: (after[name] - before[name] - _OF_MEASURING.get(name, 0)) / calls for name in after}
        for before, after in pairwise(found)
    ]
    return {name: max(0.0, min((step[name] for step in steps), default=0.0)) for name in found[0]}


def is_close(first: Tensor, last: Tensor, rounding: float) -> bool:
    """Return whether two runs differ by rounding at most, as they may on a GPU: of the largest, and of 1.

    A number near 0 may be a small difference of large ones, and is rounded as these are.
    """
    if first.shape != last.shape or first.dtype != last.dtype:
        return False
    if not first.is_floating_point() or not first.numel():
        return torch.equal(first, last)
    one, other = first.double(), last.double()
    scale = max(1.0, float(one.abs().nan_to_num(posinf=0.0).max()))
    return torch.allclose(one, other, rtol=0.0, atol=rounding * scale, equal_nan=True)


@contextmanager
def filled_memory() -> Iterator[None]:
    """Let memory that is allocated inside hold huge numbers, where the C library can; usually it is zeros.

    Code that reads what it has not written gives other numbers then, and not just now and then.
    """
    fill = getattr(ctypes.CDLL(None), "mallopt", None)
    if fill is None:
        yield
        return
    fill(_PERTURB, _FILLED_WITH ^ 0xFF)
    try:
        yield
    finally:
        fill(_PERTURB, 0)


@contextmanager
def other_threads() -> Iterator[None]:
    """Let torch use two threads inside where it uses one, and one where it uses more."""
    threads = torch.get_num_threads()
    torch.set_num_threads(2 if threads == 1 else 1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _resources() -> dict[str, int]:
    """Return what this process holds now: bytes, Python objects, open files and threads."""
    gc.collect()
    found = {
        "bytes of memory": _allocated_bytes(),
        "Python objects": sys.getallocatedblocks(),
        "open files": _count("/proc/self/fd"),
        "threads": _count("/proc/self/task"),
    }
    if torch.cuda.is_initialized():
        found["bytes of GPU memory"] = torch.cuda.memory_allocated()
    return found


def _count(folder: str) -> int:
    return sum(1 for _ in Path(folder).iterdir())


class _MallInfo(ctypes.Structure):
    """The fields of glibc's mallinfo2, which counts what is allocated, in all arenas."""

    _fields_ = tuple(
        (name, ctypes.c_size_t)
        for name in (
            *("arena", "ordblks", "smblks", "hblks", "hblkhd"),
            *("usmblks", "fsmblks", "uordblks", "fordblks", "keepcost"),
        )
    )


def _allocated_bytes() -> int:
    """Return the bytes that are allocated and not freed; 0 where the C library does not count them."""
    libc = ctypes.CDLL(None)
    if not hasattr(libc, "mallinfo2"):
        return 0
    libc.mallinfo2.restype = _MallInfo
    info = libc.mallinfo2()
    return int(info.uordblks + info.hblkhd)


def call_at_once(
    call: Call, cases: tuple[Tensors, Tensors], save: Callable[[int, Tensors, Tensors], None]
) -> CallsAtOnce:
    """Call from threads at once, each with inputs of its own, and compare with calls alone.

    `save` is called for each thread whose outputs differed: with its number, the outputs of a call alone, and
    those that differ most.
    """
    start = Barrier(THREADS)
    still_short = set(range(THREADS))  # threads that have not been busy for long enough
    turns = Lock()
    callers = [
        _Caller(call, inputs, start, turns, number, still_short) for number, inputs in enumerate(cases)
    ]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    errors = [caller.error for caller in callers if caller.error is not None]
    if errors:  # the others may have waited in vain for one that failed
        raise next((each for each in errors if not isinstance(each, BrokenBarrierError)), errors[0])
    for number, caller in enumerate(callers):
        if caller.worst is not None:
            save(number, caller.alone, caller.worst)
    return CallsAtOnce(
        calls=sum(caller.calls for caller in callers), differing=sum(caller.differing for caller in callers)
    )


class _Caller(Thread):
    """A thread that calls with inputs of its own, and keeps the outputs that differ most."""

    def __init__(
        self, call: Call, inputs: Tensors, start: Barrier, turns: Lock, number: int, still_short: set[int]
    ) -> None:
        super().__init__()
        self.alone: Tensors = {}
        self.calls, self.differing = 0, 0
        self.worst: Tensors | None = None
        self.error: BaseException | None = None
        self._call, self._inputs, self._start_together, self._turns = call, inputs, start, turns
        self._number, self._still_short = number, still_short

    def run(self) -> None:
        try:
            self._repeat()
        except BaseException as error:  # noqa: BLE001  raised again by the thread that waits
            self.error = error
            self._start_together.abort()

    def _repeat(self) -> None:
        largest = 0.0
        with self._turns:  # in this thread: OpenMP may give another number of threads to the main one
            self.alone = _copy(self._call(self._inputs))
        self._start_together.wait()
        end, busy_until = time.perf_counter() + _AT_ONCE_S, time.thread_time() + _BUSY_S
        # A thread that has done its part goes on, so that the others do not call alone.
        while self.calls < _FEWEST or (self._still_short and time.perf_counter() < end):
            outputs = self._call(self._inputs)
            self.calls += 1
            if distance := _distance(self.alone, outputs):
                self.differing += 1
                if distance > largest:
                    largest, self.worst = distance, _copy(outputs)
            if time.thread_time() >= busy_until:
                self._still_short.discard(self._number)


def _copy(tensors: Mapping[str, Tensor]) -> Tensors:
    return {name: value.clone() for name, value in tensors.items()}


def find_changed(before: Mapping[str, Tensor], now: Mapping[str, Tensor]) -> tuple[str, ...]:
    """Return the names of tensors that do not have the same bits any more."""
    return tuple(name for name in before if not _is_same(before[name], now[name]))


def _is_same(first: Tensor, second: Tensor) -> bool:
    """Return whether two tensors have the same bits, NaN included."""
    if first.shape != second.shape or first.dtype != second.dtype:
        return False
    return torch.equal(*(each.contiguous().reshape(-1).view(torch.uint8) for each in (first, second)))


def _distance(alone: Mapping[str, Tensor], found: Mapping[str, Tensor]) -> float:
    """Return how far outputs are from those of a call alone; 0 only if all bits are the same."""
    names = find_changed(alone, found)
    return max((_largest(alone[name], found[name]) for name in names), default=0.0)


def _largest(alone: Tensor, found: Tensor) -> float:
    if alone.shape != found.shape or not alone.is_floating_point():
        return float("inf")
    largest = float((alone.double() - found.double()).abs().nan_to_num(nan=float("inf")).max())
    return max(largest, sys.float_info.min)  # not 0: the bits differ
