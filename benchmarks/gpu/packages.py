"""Compare packages of recorded models on a GPU with eager, torch.compile and CUDA graphs; time their exports.

`python -m benchmarks.gpu.packages --out folder --budget-seconds 400`. Results, failures included, are written
below the folder while it runs; a table comes last.
"""

import argparse
import json
import shutil
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.gpu.export_process import ENVIRONMENT, ExportResult, export_in_process
from benchmarks.gpu.guarded_command import run_guarded

FIXTURES = Path(__file__).parents[2] / "tests" / "fixtures" / "torcheasyrec"
SIZES = (1, 8, 64, 512)
SUBJECTS = (("hstu_match", "user"), ("hstu_match", "item"), ("dlrm_hstu", "model"))
KERNELS, MODES = ("pytorch", "triton"), ("unified", "two_stage")
_AT_A_TIME = 4  # exports side by side that are not timed
_LEAST_S = 45.0  # nothing new begins with less time left than this
_ALONE = ("hstu_match", "unified", "pytorch")  # the export that is timed, cold and warm

Case = tuple[str, str, str]  # model, mode, kernel


@dataclass
class Results:
    """All results so far; written to packages.json after each step."""

    out: Path
    exports: dict[str, dict[str, object]] = field(default_factory=dict)
    times: list[dict[str, object]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def keep(self) -> None:
        results = {"exports": self.exports, "times": self.times, "notes": self.notes}
        (self.out / "packages.json").write_text(json.dumps(results, indent=1))


def measure(out: Path, budget_s: float) -> Iterator[str]:
    """Export and time the models, write packages.json below `out`, and yield the lines of the table."""
    until = time.monotonic() + budget_s
    out.mkdir(parents=True, exist_ok=True)
    results = Results(out)
    try:
        with tempfile.TemporaryDirectory(prefix="slipway-gpu-") as scratch:
            artifacts = _export_cases(results, Path(scratch), until)
            for model, tower in SUBJECTS:
                _time_tower(results, model, tower, artifacts, Path(scratch), until)
    except Exception:  # noqa: BLE001  earlier results are still reported
        results.notes.append(f"FAILED: {traceback.format_exc()[-2000:]}")
    finally:  # after a Ctrl-C as well
        results.keep()
        yield from _table(results)


def spec_of(model: str, mode: str, kernel: str) -> dict[str, object]:
    """Return an export of a recorded model for this GPU, as JSON."""
    return {
        "config_uri": str(FIXTURES / model / "pipeline.config"),
        "checkpoint_uri": str(FIXTURES / model / "model.ckpt-11"),
        "item_input_uri": str(FIXTURES / "data" / "items.parquet"),
        "sample_input_uri": str(FIXTURES / "data" / "train.parquet"),
        "output_uri": "unused",
        "mode": mode,
        "device": "cuda",
        "max_batch_size": SIZES[-1],
        "kernel": kernel,
    }


def _export_cases(results: Results, scratch: Path, until: float) -> dict[Case, Path]:
    """Export all cases that fit into the time; the first runs alone, cold and then warm."""
    artifacts: dict[Case, Path] = {}
    compiler = scratch / "compiler"

    def export_case(case: Case, note: str, cache: Path | None = None) -> None:
        name = " ".join((*case, note)).strip()
        if time.monotonic() > until - _LEAST_S:
            results.notes.append(f"no time was left to export {name}")
            return
        try:
            folder = scratch / name.replace(" ", "-")
            limit_s = max(_LEAST_S, min(300.0, until - time.monotonic()))
            made = export_in_process(
                spec_of(*case), folder, compiler=compiler, code_cache=cache, limit_s=limit_s
            )
        except Exception:  # noqa: BLE001  any failure belongs to this case only
            results.exports[name] = {"failed": traceback.format_exc()[-2000:]}
        else:
            results.exports[name] = _summary_of(made)
            shutil.copy(folder / "log.txt", results.out / f"export-{folder.name}.txt")
            if made.artifact.exists():
                artifacts.setdefault(case, made.artifact)
        results.keep()

    export_case(_ALONE, "cold", scratch / "cache")
    export_case(_ALONE, "warm", scratch / "cache")
    others = [
        (model, mode, kernel)
        for kernel in KERNELS
        for mode in MODES
        for model in dict.fromkeys(model for model, _ in SUBJECTS)
        if (model, mode, kernel) != _ALONE
    ]
    with ThreadPoolExecutor(_AT_A_TIME) as pool:
        list(pool.map(lambda case: export_case(case, ""), others))
    return artifacts


def _summary_of(made: ExportResult) -> dict[str, object]:
    return {"seconds": round(made.seconds, 1), "stages": made.stages, "failures": made.failures}


def _time_tower(
    results: Results, model: str, tower: str, artifacts: dict[Case, Path], scratch: Path, until: float
) -> None:
    """Time all contenders of a tower in a separate process, and read its lines."""
    name, left_s = f"{model} {tower}", until - time.monotonic()
    if left_s < _LEAST_S / 2:
        results.notes.append(f"no time was left to time {name}")
        return
    request, lines = scratch / f"{model}-{tower}.json", results.out / f"times-{model}-{tower}.jsonl"
    contenders = {
        f"{kernel} {mode}": str(path)
        for (of, mode, kernel), path in artifacts.items()
        if of == model and (path / tower).exists()
    }
    request.write_text(
        json.dumps(
            {
                "name": name,
                "tower": tower,
                "spec": spec_of(model, "unified", "pytorch"),
                "artifacts": contenders,
                "sizes": SIZES,
                "scratch": str(scratch / "served"),
            }
        )
    )
    lines.unlink(missing_ok=True)
    command = [
        sys.executable,
        "-W",
        "ignore",
        "-m",
        "benchmarks.gpu.timing_process",
        str(request),
        str(lines),
    ]
    places = (f"TMPDIR={scratch}", f"TORCHINDUCTOR_CACHE_DIR={scratch / 'compiler'}")
    checked = ("AOTI_RUNTIME_CHECK_INPUTS=1",)  # as servers should set it
    log = results.out / f"times-{model}-{tower}.txt"
    with log.open("w") as words:
        command = ["env", *ENVIRONMENT, *checked, *places, *command]
        ending = run_guarded(command, limit_s=min(left_s, 200.0), log=words)
    if ending:
        last = log.read_text(errors="replace")[-1500:]
        results.notes.append(f"timing {name}: {ending}: {last}")
    if lines.exists():
        results.times += [json.loads(line) for line in lines.read_text().splitlines()]
    results.keep()


def _table(results: Results) -> Iterator[str]:
    yield (
        f"{'subject':<18} {'batch':>5}  {'contender':<34} {'p50 ms':>8} {'p99 ms':>8} {'rows/s':>10} "
        f"{'x eager':>7}"
    )
    eager = {
        (line["subject"], line["size"]): line["p50_ms"]
        for line in results.times
        if line["contender"] == "eager" and "p50_ms" in line
    }
    for line in results.times:
        begins = f"{line['subject']:<18} {line['size']:>5}  {line['contender']:<34}"
        if "failed" in line:
            yield f"{begins} failed: {_last_line(line['failed'])}"
            continue
        p50 = float(str(line["p50_ms"]))
        of_eager = float(str(eager.get((line["subject"], line["size"]), "nan"))) / p50
        yield f"{begins} {p50:>8.3f} {line['p99_ms']:>8.3f} {line['rows_per_s']:>10,.0f} {of_eager:>7.2f}"
    for name, export in results.exports.items():
        failures = export.get("failures") or ({"": export["failed"]} if "failed" in export else {})
        failed = "; ".join(f"FAILED {tower} {_first_line(text)}" for tower, text in dict(failures).items())  # type: ignore[call-overload]  # a dict of texts
        result = failed or "all towers passed the gate"
        yield f"export {name:<36} {export.get('seconds', '')!s:>6} s  {result}"
    yield from (f"note: {_shorten(note)}" for note in results.notes)


def _shorten(note: str) -> str:
    return note if len(note) < 500 else f"{note[:80]} ... {note[-400:]}"


def _first_line(text: object) -> str:
    """Return the first line of an error, or the exception of a traceback."""
    lines = [line for line in str(text).strip().splitlines() if line[:1].strip()] or [""]
    return lines[-1 if lines[0].startswith("Traceback") else 0][:240]


def _last_line(text: object) -> str:
    return str(text).strip().rpartition("\n")[2][:160]


def main() -> int:
    """Measure, print the table, keep it beside the figures."""
    parser = argparse.ArgumentParser(prog="benchmarks.gpu.packages", description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--budget-seconds", type=float, default=480.0)
    given = parser.parse_args()
    lines = list(measure(given.out, given.budget_seconds))
    (given.out / "packages.txt").write_text("\n".join(lines) + "\n")
    sys.stdout.write("\n".join(lines) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
