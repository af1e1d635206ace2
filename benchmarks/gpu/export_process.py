"""One export in its own process: `python -m benchmarks.gpu.export_process spec.json folder [code-cache]`.

Little is known about a GPU machine beforehand, so everything that happens is written to the folder: events
as they come, every failure with its traceback, and the process's output. Failures are not minimised, which
would take minutes.
"""

import json
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from benchmarks.gpu.guarded_command import run_guarded

if TYPE_CHECKING:
    from torch.fx import Graph

ENVIRONMENT = ("OMP_WAIT_POLICY=passive", "PYTORCH_NVML_BASED_CUDA_CHECK=1", "PYTHONUNBUFFERED=1")
_LAST_WORDS = 3000

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class ExportResult:
    """The result of an export; `failures` are by tower, with "" for a failure of the whole export."""

    artifact: Path
    seconds: float  # of the process, its imports included
    stages: dict[str, dict[str, float]]  # by tower
    failures: dict[str, str]


def export_in_process(
    spec: dict[str, object],
    folder: Path,
    *,
    compiler: Path,
    code_cache: Path | None = None,
    limit_s: float = 400.0,
) -> ExportResult:
    """Export in a child process whose output goes to `log.txt`; its failures are results, not exceptions."""
    (folder / "tmp").mkdir(parents=True, exist_ok=True)
    request = folder / "spec.json"
    request.write_text(json.dumps({**spec, "output_uri": str(folder / "out")}))
    places = (f"TMPDIR={folder / 'tmp'}", f"TORCHINDUCTOR_CACHE_DIR={compiler}")
    command = [
        sys.executable,
        "-W",
        "ignore",
        "-m",
        "benchmarks.gpu.export_process",
        str(request),
        str(folder),
    ]
    begun = time.monotonic()
    with (folder / "log.txt").open("w") as log:
        cache = [str(code_cache)] if code_cache else []
        ending = run_guarded(["env", *ENVIRONMENT, *places, *command, *cache], limit_s=limit_s, log=log)
    outcome = folder / "outcome.json"
    if outcome.exists():
        failures = {str(name): str(text) for name, text in json.loads(outcome.read_text()).items()}
    else:
        words = (folder / "log.txt").read_text(errors="replace")[-_LAST_WORDS:]
        failures = {"": f"there is no outcome; {ending}: {words}"}
    return ExportResult(
        artifact=folder / "out" / "gpu",
        seconds=time.monotonic() - begun,
        stages=_stages(folder / "events.jsonl"),
        failures=failures,
    )


def _stages(events: Path) -> dict[str, dict[str, float]]:
    """Return the seconds of each finished stage, by tower."""
    found: dict[str, dict[str, float]] = {}
    for line in events.read_text().splitlines() if events.exists() else ():
        event = json.loads(line)
        if event["kind"] == "finished":
            found.setdefault(event["tower"], {})[event["stage"]] = round(event["seconds"], 2)
    return found


def main() -> None:
    """Export the spec and write outcome.json; this runs in the child process."""
    import logging

    logging.basicConfig(level=logging.WARNING)
    folder = Path(sys.argv[2])
    try:
        failures = _export_spec(Path(sys.argv[1]), folder, sys.argv[3] if len(sys.argv) > 3 else None)
    except Exception:  # noqa: BLE001  any failure is reported in the outcome
        failures = {"": traceback.format_exc()[-_LAST_WORDS:]}
    (folder / "outcome.json").write_text(json.dumps(failures))


def _export_spec(request: Path, folder: Path, code_cache: str | None) -> dict[str, str]:
    import torch

    if json.loads(request.read_text())["device"] == "cuda":
        # Asking the driver would keep forks from using the GPU; they find out whether there is one.
        torch.cuda.is_available = lambda: True
    import exporter.packages.package_tower
    import exporter.pipeline.export
    import exporter.verify.cases
    from exporter.attempt.attempt import DIAGNOSTICS, Attempt
    from exporter.data.batch import contradicting_batches
    from exporter.distributed.ranks import Ranks
    from exporter.spec import ExportSpec
    from exporter.stages import StageEvent

    workspace = folder / "work"
    workspace.mkdir(exist_ok=True)

    def report(event: StageEvent) -> None:  # towers run in separate processes, so events go through a file
        if event.kind != "progress":
            with (folder / "events.jsonl").open("a") as lines:
                lines.write(event.model_dump_json() + "\n")

    patch_old_torch()
    for module, name, instead in (
        (exporter.packages.package_tower, "minify_build_failure", lambda *_: nullcontext()),
        (exporter.packages.package_tower, "minify_tracing_failure", lambda *_: nullcontext()),
        (exporter.verify.cases, "contradicting_batches", drop_unchecked_cases(contradicting_batches)),
    ):
        setattr(module, name, instead)
    spec = ExportSpec.model_validate_json(request.read_text())
    attempt = Attempt(job_id="gpu", spec=spec, workspace=workspace, code_cache=code_cache)
    outcome = exporter.pipeline.export.export(attempt, Ranks(), report)
    assert outcome is not None
    failures = {} if outcome.failure is None else {"": f"{outcome.failure.code}: {outcome.failure.message}"}
    for tower in outcome.towers:
        if tower.failure is not None:
            trace = workspace / tower.tower / DIAGNOSTICS / "traceback.txt"
            last_words = trace.read_text()[-_LAST_WORDS:] if trace.exists() else ""
            failures[tower.tower] = f"{tower.failure.code}: {tower.failure.message}\n{last_words}"
    return failures


def patch_old_torch() -> None:
    """Let torch before 2.13 compile calls of Triton kernels over sizes that vary.

    It traces each call with eager's sizes and with its own, and asserts that both give equally many nodes.
    """
    if _release() >= (2, 13):
        return
    import torch._inductor.config as compiler  # noqa: TID251  of a torch that Slipway itself is not made for

    def drop_eager_values(graph: "Graph") -> None:
        for node in graph.nodes:
            if "triton_kernel_wrapper" in str(node.target):
                node.meta.pop("eager_input_vals", None)

    compiler.post_grad_custom_pre_pass = drop_eager_values


def _release() -> tuple[int, ...]:
    import torch

    return tuple(map(int, torch.__version__.split(".")[:2]))


def drop_unchecked_cases(batches: Callable[P, Iterator[T]]) -> Callable[P, Iterator[T]]:
    """Return the function without the cases that packages of this torch compute instead of refusing.

    Of inputs that share a dim, packages compare the sizes from torch 2.13 on.
    """
    if _release() >= (2, 13):
        return batches

    def filtered(*args: P.args, **kwargs: P.kwargs) -> Iterator[T]:
        return (
            each
            for each in batches(*args, **kwargs)
            if not str(getattr(each, "name", "")).startswith(("one_row_short", "one_event_short"))
        )

    return filtered


if __name__ == "__main__":
    main()
