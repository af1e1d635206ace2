"""Time one tower on this GPU in its own process: eager, torch.compile, packages, CUDA graphs of packages.

`python -m benchmarks.gpu.timing_process request.json lines.jsonl` writes a line per contender and batch size
as soon as it has it, so a process that dies leaves the earlier ones. A failing contender's line holds its
traceback.
"""

import json
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

if TYPE_CHECKING:
    from exporter.verify.reload import Link

Inputs = dict[str, Tensor]
Call = Callable[[Inputs], Inputs]

_COMPILED = "torch.compile"
_BATCHES = 4  # with different rows
_WARM_UPS = 5
_LEAST, _MOST_CALLS, _SECONDS = 50, 2000, 0.7  # limits for one contender on one size
_SEED = 3
_APART = 1e-3  # of the largest magnitude, in fp32: contenders must compute the same function


class Subject(NamedTuple):
    """The contenders of one tower: their calls, and the inputs to call them with."""

    calls: dict[str, Call]
    rows: "Callable[[int], list[Inputs]]"  # batches of a size, on the GPU
    between: Call  # computes the inputs of dense packages from these
    graphed: dict[str, Callable[[], Call]]  # packages loaded in the form that a CUDA graph can capture

    def inputs_of(self, name: str, batches: list[Inputs]) -> list[Inputs]:
        """Return the inputs with which a contender is called for these batches."""
        return [self.between(each) for each in batches] if name.startswith("dense") else batches


def main() -> None:
    request = json.loads(Path(sys.argv[1]).read_text())
    output = Path(sys.argv[2])

    def write_line(**line: object) -> None:
        with output.open("a") as lines:
            lines.write(json.dumps({"subject": request["name"], **line}) + "\n")

    subject = _load_subject(request, write_line)
    with torch.no_grad():
        # Contenders that compile come last, because they may use up all of the time.
        for names in ([name for name in subject.calls if name != _COMPILED], [_COMPILED]):
            for size in request["sizes"]:
                _measure_size(subject, names, size, write_line)
        for size in request["sizes"]:  # at the very end: a failed capture leaves the allocator in a bad state
            _measure_graphs(subject, size, write_line)


def _measure_size(subject: Subject, names: list[str], size: int, write_line: Callable[..., None]) -> None:
    batches = subject.rows(size)
    try:
        expected = subject.calls["eager"](batches[0])
    except Exception:  # noqa: BLE001  the size may be too large for this GPU
        write_line(size=size, contender="eager", failed=traceback.format_exc()[-1500:])
        return
    for name in names:
        try:
            call, given = subject.calls[name], subject.inputs_of(name, batches)
            torch.cuda.reset_peak_memory_stats()
            apart = _largest_difference(expected, call(given[0]))
            times_ms = _times(call, given)
            memory = torch.cuda.max_memory_allocated()
            write_line(size=size, contender=name, apart=apart, memory=memory, **_summarise(times_ms, size))
        except Exception:  # noqa: BLE001  any failure belongs to this contender only
            write_line(size=size, contender=name, failed=traceback.format_exc()[-1500:])


def _measure_graphs(subject: Subject, size: int, write_line: Callable[..., None]) -> None:
    batches = subject.rows(size)[:1]
    for name, load in subject.graphed.items():
        _measure_graph(name, load, subject.inputs_of(name, batches)[0], size, write_line)


def _measure_graph(
    name: str, load: Callable[[], Call], inputs: Inputs, size: int, write_line: Callable[..., None]
) -> None:
    """Capture the call once and time its replay on the same inputs."""
    try:
        call = load()
        expected = {key: value.clone() for key, value in call(inputs).items()}
        aside = torch.cuda.Stream()
        aside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(aside):
            for _ in range(3):
                call(inputs)
        torch.cuda.current_stream().wait_stream(aside)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            outputs = call(inputs)

        def replay(_: Inputs) -> Inputs:
            graph.replay()
            return outputs

        apart = _largest_difference(expected, replay(inputs))
        times_ms = _times(replay, [inputs])
        write_line(size=size, contender=f"{name}, graph", apart=apart, **_summarise(times_ms, size))
    except Exception:  # noqa: BLE001  as above
        write_line(size=size, contender=f"{name}, graph", failed=traceback.format_exc()[-1500:])
        torch.cuda.synchronize()


def _times(call: Call, batches: list[Inputs]) -> list[float]:
    """Return milliseconds of each call, from its start until the GPU is done."""
    for number in range(_WARM_UPS):
        call(batches[number % len(batches)])
    torch.cuda.synchronize()
    times_ms: list[float] = []
    until = time.perf_counter() + _SECONDS
    while len(times_ms) < _LEAST or (len(times_ms) < _MOST_CALLS and time.perf_counter() < until):
        inputs = batches[len(times_ms) % len(batches)]
        begun = time.perf_counter()
        call(inputs)
        torch.cuda.synchronize()
        times_ms.append((time.perf_counter() - begun) * 1e3)
    return times_ms


def _summarise(times_ms: list[float], size: int) -> dict[str, float]:
    ordered = sorted(times_ms)
    return {
        "calls": len(ordered),
        "p50_ms": round(ordered[len(ordered) // 2], 4),
        "p99_ms": round(ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))], 4),
        "rows_per_s": round(size * len(ordered) / (sum(ordered) / 1e3), 1),
    }


def _largest_difference(expected: Mapping[str, Tensor], given: Mapping[str, Tensor]) -> float:
    """Return the largest difference relative to its output's largest magnitude; raise if too large."""
    torch.cuda.synchronize()
    apart = 0.0
    for name, value in expected.items():
        scale = float(value.double().abs().max()) or 1.0
        apart = max(apart, float((given[name].double() - value.double()).abs().max()) / scale)
    if not apart <= _APART:
        raise AssertionError(f"the outputs are {apart:.2g} of their scale apart from eager's")
    return apart


def _load_subject(request: dict[str, object], write_line: Callable[..., None]) -> Subject:
    """Load the tower onto the GPU with its weights, and prepare every contender."""
    import numpy as np

    from exporter.checkpoint.read import open_checkpoint
    from exporter.construction.open_blueprint import ConfiguredBlueprint
    from exporter.construction.sources import open_rows
    from exporter.data.batch import trace_inputs
    from exporter.data.rows import named_batch
    from exporter.spec import ExportSpec
    from exporter.towers.plan import plan_towers
    from exporter.towers.split import split_tower
    from exporter.trace.trace_tower import trace_tower
    from exporter.verify.reload import Chain

    gpu = torch.device("cuda")
    spec = ExportSpec.model_validate(request["spec"])
    config = Path(str(spec.config_uri)).read_text()
    [planned] = [each for each in plan_towers(spec, config) if each.name == request["tower"]]
    blueprint = ConfiguredBlueprint(planned, spec.tables)
    tower = blueprint.build()
    blueprint.fill(tower, open_checkpoint(Path(spec.checkpoint_uri)))
    tower.module.to(gpu)
    rows, _ = open_rows(planned, spec)

    def batches(size: int) -> list[Inputs]:
        random = np.random.default_rng(_SEED)
        drawn = [rows.select(random.integers(len(rows), size=size)) for _ in range(_BATCHES)]
        made = [named_batch("drawn", each, tower.plan).inputs for each in drawn]
        return [{name: value.to(gpu) for name, value in each.items()} for each in made]

    calls: dict[str, Call] = {"eager": tower.module}
    sparse, _ = split_tower(tower, max_batch_size=spec.max_batch_size)
    try:
        program = trace_tower(tower, trace_inputs(rows, tower.plan), gpu)
        calls[_COMPILED] = torch.compile(program.module(check_guards=False), dynamic=True)
    except Exception:  # noqa: BLE001  as of any contender
        write_line(size=0, contender=_COMPILED, failed=traceback.format_exc()[-1500:])
    graphed: dict[str, Callable[[], Call]] = {}
    for name, artifact in dict(request["artifacts"]).items():  # type: ignore[call-overload]  # as written by `packages`
        try:
            chains = _chains(name, Path(artifact), str(request["tower"]), Path(str(request["scratch"])))
            calls |= {each: Chain(chain, gpu) for each, chain in chains.items()}
            graphed |= {
                each: partial(Chain, chain, gpu, single_threaded=True) for each, chain in chains.items()
            }
        except Exception:  # noqa: BLE001  as of any contender
            write_line(size=0, contender=name, failed=traceback.format_exc()[-1500:])
    return Subject(calls=calls, rows=batches, between=sparse.module, graphed=graphed)


def _chains(name: str, artifact: Path, tower: str, scratch: Path) -> "dict[str, Sequence[Link]]":
    """Return the chain of an artifact's packages, and the dense package alone if there are two."""
    from exporter.serving.downloaded_tower import download_tower
    from exporter.spec import TowerName

    downloaded = download_tower(
        str(artifact), TowerName(tower), scratch / f"{artifact.parent.parent.name}-{tower}"
    )
    chains: dict[str, Sequence[Link]] = {f"package {name}": downloaded.chain}
    if len(downloaded.chain) > 1:
        chains[f"dense {name}"] = downloaded.chain[-1:]
    return chains


if __name__ == "__main__":
    main()
