"""Slipway as a program of the contract: `python -m benchmarks.contest.slipway_program {export|latency}`."""

import argparse
import json
import statistics
import sys
import time
from collections.abc import Iterator
from pathlib import Path


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    programs = parser.add_subparsers(required=True)
    export = programs.add_parser("export")
    export.set_defaults(run=_export)
    for name in ("config", "checkpoint", "rows", "output", "caches"):
        export.add_argument(f"--{name}", type=Path, required=True)
    export.add_argument("--items", type=Path)
    latency = programs.add_parser("latency")
    latency.set_defaults(run=_print_latencies)
    for name in ("output", "batches"):
        latency.add_argument(f"--{name}", type=Path, required=True)
    latency.add_argument("--tower", required=True)
    latency.add_argument("--seconds", type=float, required=True)
    given = parser.parse_args()
    status: int = given.run(given)
    return status


def _export(given: argparse.Namespace) -> int:
    """Export as `slipway export` does, with the code cache among the caches."""
    from cli.main import main as slipway

    spec = {
        "config_uri": str(given.config),
        "checkpoint_uri": str(given.checkpoint),
        "sample_input_uri": str(given.rows),
        "output_uri": str(given.output),
    }
    if given.items:
        spec["item_input_uri"] = str(given.items)
    written = given.caches / "spec.json"
    written.write_text(json.dumps(spec))
    return slipway(["export", "--spec", str(written), "--code-cache", str(given.caches / "code")])


def _print_latencies(given: argparse.Namespace) -> int:
    """Call a tower on each size of batch, and print a line for each."""
    import tempfile

    import torch
    from safetensors.torch import load_file

    from exporter.serving.downloaded_tower import download_tower
    from exporter.spec import TowerName
    from exporter.verify.reload import Chain

    (artifact,) = given.output.iterdir()
    with tempfile.TemporaryDirectory() as folder, torch.no_grad():
        tower = download_tower(str(artifact), TowerName(given.tower), Path(folder))
        chain = Chain(tower.chain, torch.device("cpu"))
        for size, files in _group_batches(given.batches):
            batches = [load_file(file) for file in files]
            first, *_ = [chain(batch) for batch in batches]
            times: list[float] = []
            end = time.perf_counter() + given.seconds
            while len(times) < len(batches) or time.perf_counter() < end:
                batch = batches[len(times) % len(batches)]
                begun = time.perf_counter()
                chain(batch)
                times.append((time.perf_counter() - begun) * 1e3)
            outputs = {name: value.abs().double().mean().item() for name, value in first.items()}
            line = {"batch": size, "p50_ms": statistics.median(times), "outputs": outputs}
            sys.stdout.write(json.dumps(line) + "\n")
            sys.stdout.flush()
    return 0


def _group_batches(folder: Path) -> Iterator[tuple[int, list[Path]]]:
    """Yield each size of batch with its files, from the smallest on."""
    sizes: dict[int, list[Path]] = {}
    for file in sorted(folder.iterdir()):
        sizes.setdefault(int(file.name.partition("-")[0]), []).append(file)
    yield from sorted(sizes.items())


if __name__ == "__main__":
    sys.exit(main())
