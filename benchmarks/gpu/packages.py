"""Recorded models on a GPU: their packages against eager, torch.compile and CUDA graphs; seconds of exports.

`python -m benchmarks.gpu.packages --out folder --budget-seconds 400`. Everything is written below the folder
as it comes, and what fails is part of it; a table comes last.
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
_AT_A_TIME = 4  # exports that are not timed
_LEAST_S = 45.0  # nothing new is begun with less than this left
_ALONE = ("hstu_match", "unified", "pytorch")  # the export that is timed, cold and warm

Case = tuple[str, str, str]  # model, mode, kernel


@dataclass
class Results:
    """All that was found out, kept in packages.json after each step."""

    out: Path
    exports: dict[str, dict[str, object]] = field(default_factory=dict)
    times: list[dict[str, object]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def keep(self) -> None:
        told = {"exports": self.exports, "times": self.times, "notes": self.notes}
        (self.out / "packages.json").write_text(json.dumps(told, indent=1))


def measure(out: Path, budget_s: float) -> Iterator[str]:
    """Export, time, write packages.json below `out`; the lines of the table."""
    until = time.monotonic() + budget_s
    out.mkdir(parents=True, exist_ok=True)
    results = Results(out)
    try:
        with tempfile.TemporaryDirectory(prefix="slipway-gpu-") as scratch:
            artifacts = _exports(results, Path(scratch), until)
            for model, tower in SUBJECTS:
                _timed(results, model, tower, artifacts, Path(scratch), until)
    except Exception:  # noqa: BLE001  what was found until then is to be read all the same
        results.notes.append(f"FAILED: {traceback.format_exc()[-2000:]}")
    finally:  # after a Ctrl-C as well
        results.keep()
        yield from _table(results)


def spec_of(model: str, mode: str, kernel: str) -> dict[str, object]:
    """An export of a recorded model for this GPU, as JSON."""
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


def _exports(results: Results, scratch: Path, until: float) -> dict[Case, Path]:
    """The artifacts of all cases that could be made in time: the first alone, cold and then warm."""
    artifacts: dict[Case, Path] = {}
    compiler = scratch / "compiler"

    def done(case: Case, note: str, cache: Path | None = None) -> None:
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
        except Exception:  # noqa: BLE001  it is this case's
            results.exports[name] = {"failed": traceback.format_exc()[-2000:]}
        else:
            results.exports[name] = _told(made)
            shutil.copy(folder / "log.txt", results.out / f"export-{folder.name}.txt")
            if made.artifact.exists():
                artifacts.setdefault(case, made.artifact)
        results.keep()

    done(_ALONE, "cold", scratch / "cache")
    done(_ALONE, "warm", scratch / "cache")
    others = [
        (model, mode, kernel)
        for kernel in KERNELS
        for mode in MODES
        for model in dict.fromkeys(model for model, _ in SUBJECTS)
        if (model, mode, kernel) != _ALONE
    ]
    with ThreadPoolExecutor(_AT_A_TIME) as pool:
        list(pool.map(lambda case: done(case, ""), others))
    return artifacts


def _told(made: ExportResult) -> dict[str, object]:
    return {"seconds": round(made.seconds, 1), "stages": made.stages, "failures": made.failures}


def _timed(
    results: Results, model: str, tower: str, artifacts: dict[Case, Path], scratch: Path, until: float
) -> None:
    """Let a process of its own call everything of a tower, and read what it told."""
    name, left_s = f"{model} {tower}", until - time.monotonic()
    if left_s < _LEAST_S / 2:
        results.notes.append(f"no time was left to time {name}")
        return
    order, lines = scratch / f"{model}-{tower}.json", results.out / f"times-{model}-{tower}.jsonl"
    contenders = {
        f"{kernel} {mode}": str(path)
        for (of, mode, kernel), path in artifacts.items()
        if of == model and (path / tower).exists()
    }
    order.write_text(
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
    command = [sys.executable, "-W", "ignore", "-m", "benchmarks.gpu.timing_process", str(order), str(lines)]
    places = (f"TMPDIR={scratch}", f"TORCHINDUCTOR_CACHE_DIR={scratch / 'compiler'}")
    checked = ("AOTI_RUNTIME_CHECK_INPUTS=1",)  # as servers are told to have it
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
        told = "; ".join(f"FAILED {tower} {_first_line(text)}" for tower, text in dict(failures).items())  # type: ignore[call-overload]  # a dict of texts
        yield f"export {name:<36} {export.get('seconds', '')!s:>6} s  {told or 'all towers passed the gate'}"
    yield from (f"note: {_shortened(note)}" for note in results.notes)


def _shortened(note: str) -> str:
    return note if len(note) < 500 else f"{note[:80]} ... {note[-400:]}"


def _first_line(text: object) -> str:
    """What went wrong: of a traceback, what was raised."""
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
