"""Rehearse what `deploy.gpu_kit` wrote: `python -m deploy.gpu_rehearsal PYTHON`.

PYTHON is an interpreter with torch, triton, numpy, pyarrow, pytest and safetensors, as a GPU machine has it.
The checkout's files and the kit are copied to an empty folder, as they would travel. There the kit is put
into place, the tests for GPUs are collected, and a tower of every family is exported on the CPU: the reduced
board, which is written to --record. The slices themselves need a GPU.
"""

import argparse
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
MOST_BYTES = 64 << 20  # of the checkout and the kit, which travel together
_REHEARSE = """
set -eu
# Nothing of the environment that this was started in is to help.
unset PYTHONPATH PYTHONHOME VIRTUAL_ENV TORCHINDUCTOR_CACHE_DIR
printf '#!/bin/sh\\nexec {python} "$@"\\n' > {temporary}/python3 && chmod +x {temporary}/python3
export PATH={temporary}:$PATH TMPDIR={temporary}
source {kit}/use
python3 -m exporter.aoti.probe.check
python3 -m pytest -q -p no:cacheprovider --collect-only tests/gpu | tail -n 1
python3 -m pytest -q -p no:cacheprovider tests/gpu -k "not test_kernels" | tail -n 1
python3 -m benchmarks.board --zoo tests/board/zoo.json --against tests/board/last.json --reduced \\
  --record {record} --html {record}.html {models}
"""


def main() -> int:
    """Rehearse in a temporary folder; return the status of what ran there."""
    parser = argparse.ArgumentParser(prog="deploy.gpu_rehearsal", description=__doc__)
    parser.add_argument("python", type=Path, metavar="PYTHON")
    parser.add_argument("--kit", type=Path, default=Path(".gpu-kit"))
    parser.add_argument("--record", type=Path, default=Path(".slipway/board-gpu-kit.json"), metavar="FILE")
    parser.add_argument("--model", action="append", default=[], help="only this model of the board")
    given = parser.parse_args()
    if not (given.kit / "use").exists():
        sys.stderr.write(f"{given.kit} is no kit: make gpu-kit writes one\n")
        return 1
    if not given.python.is_file():
        sys.stderr.write(f"{given.python} is missing: name an interpreter with the machine's torch\n")
        return 1
    given.record.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        checkout = Path(folder) / "checkout"
        size = copy_what_travels(given.kit, checkout)
        sys.stdout.write(f"{size / 2**20:.1f} MiB travel\n")
        sys.stdout.flush()
        if size > MOST_BYTES:
            sys.stderr.write(f"that is more than {MOST_BYTES >> 20} MiB\n")
            return 1
        script = _REHEARSE.format(
            kit=given.kit.name,
            python=given.python.absolute(),
            temporary=folder,
            record=given.record.absolute(),
            models=" ".join(f"--model {name}" for name in given.model),
        )
        return subprocess.run(["bash", "-c", script], cwd=checkout, check=False).returncode


def copy_what_travels(kit: Path, folder: Path) -> int:
    """Copy the files of the checkout that git does not ignore, and the kit; return their size in bytes."""
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listed, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    for name in filter(None, names.split("\0")):
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)
    shutil.copytree(kit, folder / kit.name)
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


if __name__ == "__main__":
    raise SystemExit(main())
