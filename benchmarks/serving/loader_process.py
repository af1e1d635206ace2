"""A process that loads a tower by `slipway.loader`: reads one JSON request per line, answers each with one.

Each function is a request by its name; its arguments are the other fields.
"""

import ctypes
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import median

import fbgemm_gpu  # noqa: F401  so that loading is measured without importing operators
import torch
from pydantic import BaseModel
from torch import Tensor
from torch._inductor import aoti_load_package  # noqa: TID251  the bare runner that calls are compared with

from benchmarks.measure.process_memory import memory_of
from slipway.loader import LoadedTower, load

_POPULATE_READ = 22  # madvise: map all pages for reading
_CALLS = 200  # of a round, each way
_LIBC = ctypes.CDLL(None, use_errno=True)
_LIBC.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
_held: list[LoadedTower] = []


class Loaded(BaseModel):
    """Seconds to load, and bytes of anonymous memory that it took."""

    seconds: float
    anonymous: int


class Held(BaseModel):
    """This process's share of memory, in bytes."""

    whole: int


class Compared(BaseModel):
    """Microseconds of a call in each round, and calls whose answers differ in any bit."""

    bare_us: tuple[float, ...]
    own_us: tuple[float, ...]
    different: int
    inputs: int


class Swapped(BaseModel):
    """Seconds of each swap, and answers: the first release's, the second's, and neither's."""

    seconds: tuple[float, ...]
    older: int
    newer: int
    torn: int
    distinct: bool  # whether the releases give different answers


def make_inputs(tower: LoadedTower, seed: int) -> dict[str, Tensor]:
    """Return eight rows: one value for each feature of a row, five for each of a sequence."""
    generator = torch.Generator().manual_seed(seed)
    rows, events = 8, 5
    inputs = {}
    for entry in tower.inputs:
        is_sequence = "seq" in entry.name.partition(".")[0] and "__" in entry.name
        dtype = getattr(torch, entry.dtype)
        if entry.name.endswith("lengths"):
            inputs[entry.name] = torch.full((rows,), events if is_sequence else 1, dtype=dtype)
            continue
        shape = [rows * events if is_sequence else rows, *(int(size) for size in entry.shape[1:])]
        inputs[entry.name] = torch.randint(0, 2, shape, generator=generator).to(dtype)
    return inputs


def measure_load(folder: str, tower: str) -> Loaded:
    """Load once, in a process that has imported torch and the operators, and call once."""
    before, begun = memory_of(os.getpid()), time.perf_counter()
    loaded = load(folder, tower)
    seconds = time.perf_counter() - begun
    after = memory_of(os.getpid())
    loaded(make_inputs(loaded, 1))
    _held.append(loaded)
    return Loaded(seconds=seconds, anonymous=after.anonymous - before.anonymous)


def measure_memory() -> Held:
    """Return this process's share of memory, in bytes, with all pages of weights mapped."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        if line.endswith("weights.bin"):
            start, end = (int(part, 16) for part in line.split()[0].split("-"))
            if _LIBC.madvise(start, end - start, _POPULATE_READ):
                raise OSError(ctypes.get_errno(), "madvise")
    return Held(whole=memory_of(os.getpid()).whole)


def compare_calls(folder: str, packages: list[str], tower: str, rounds: int) -> Compared:
    """Compare a tower with torch's runners of the published packages: microseconds of a call, and bits."""
    torch.set_num_threads(1)
    loaded = load(folder, tower, check="all")
    runners = [aoti_load_package(package).loader for package in packages]
    order = [entry.name for entry in loaded.inputs]
    different = 0

    def call_bare(inputs: Mapping[str, Tensor]) -> list[Tensor]:
        values = [inputs[name] for name in order]
        for runner in runners:
            values = runner.boxed_run(values)
        return values

    for seed in range(100):
        inputs = make_inputs(loaded, seed)
        theirs, ours = call_bare(inputs), list(loaded(inputs).values())
        different += not all(map(torch.equal, theirs, ours))
    inputs = make_inputs(loaded, 0)
    bare, own = [], []
    for _ in range(rounds):
        bare.append(_microseconds(lambda: call_bare(inputs)))
        own.append(_microseconds(lambda: loaded(inputs)))
    return Compared(bare_us=tuple(bare), own_us=tuple(own), different=different, inputs=len(inputs))


def _microseconds(call: Callable[[], object]) -> float:
    times = []
    for _ in range(_CALLS):
        begun = time.perf_counter()
        call()
        times.append(time.perf_counter() - begun)
    return median(times) * 1e6


def measure_swaps(folders: list[str], tower: str, calls: int, threads: int) -> Swapped:
    """Swap between two artifacts while threads call; count answers that are neither's."""
    torch.set_num_threads(1)
    loaded = load(folders[0], tower)
    inputs = make_inputs(loaded, 1)
    answers = []
    for folder in folders:
        with load(folder, tower) as alone:
            answers.append(list(alone(inputs).values()))
    counts = [[0, 0, 0] for _ in range(threads)]  # of the first's answers, the second's, and neither's

    def call(own: list[int]) -> None:
        for _ in range(calls // threads):
            found = list(loaded(inputs).values())
            which = [all(map(torch.equal, found, each)) for each in answers]
            own[which.index(True) if any(which) else 2] += 1

    running = [threading.Thread(target=call, args=(own,)) for own in counts]
    for thread in running:
        thread.start()
    seconds: list[float] = []
    while any(thread.is_alive() for thread in running):
        begun = time.perf_counter()
        loaded.swap(folders[(len(seconds) + 1) % 2])
        seconds.append(time.perf_counter() - begun)
        time.sleep(0.05)
    older, newer, torn = (sum(column) for column in zip(*counts, strict=True))
    return Swapped(
        seconds=tuple(seconds),
        older=older,
        newer=newer,
        torn=torn,
        distinct=not all(map(torch.equal, *answers)),
    )


_REQUESTS: Mapping[str, Callable[..., BaseModel]] = {
    each.__name__: each for each in (measure_load, measure_memory, compare_calls, measure_swaps)
}


def main() -> None:
    for line in sys.stdin:
        request = json.loads(line)
        answer = _REQUESTS[request.pop("do")](**request)
        sys.stdout.write(answer.model_dump_json() + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
