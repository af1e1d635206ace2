"""Test the images without an engine: follow their install steps, run their programs, and print their sizes.

`python -m deploy.prove [service] [worker-cpu] [worker-cuda] [compose]`. The environments are created at other
paths than in the images, from the same files with the same digests, by the same commands. `compose` runs the
service's and the worker's together, as compose.yaml does. Every line of output says what was run.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from deploy.dockerfile import CLEAN, Follower, stages_of
from deploy.run_services import run_compose_services

ROOT = Path(__file__).parents[1]
_FAMILIES = "torch, torchrec, fbgemm_gpu"
COMPOSE = "compose"
_OWN = ("opt/slipway", "var/lib/slipway")  # folders of an image beside its base and Debian's packages


@dataclass(frozen=True, kw_only=True)
class Image:
    """An image: its Dockerfile, the stage that installs, and the programs that must run in it."""

    dockerfile: str
    stage: str
    holds_torch: bool
    imports: str


IMAGES: Mapping[str, Image] = {
    "service": Image(
        dockerfile="service.Dockerfile", stage="build", holds_torch=False, imports="service.app"
    ),
    "worker-cpu": Image(
        dockerfile="worker.Dockerfile",
        stage="cpu",
        holds_torch=True,
        imports="worker.app, worker.attempt.rank, exporter.pipeline.export, cli.main",
    ),
    "worker-cuda": Image(
        dockerfile="worker.Dockerfile",
        stage="install-cuda",
        holds_torch=True,
        imports="worker.app, worker.attempt.rank, exporter.pipeline.export, cli.main",
    ),
}


def main() -> None:
    known = [*IMAGES, COMPOSE]
    parser = argparse.ArgumentParser(prog="python -m deploy.prove", description=__doc__)
    parser.add_argument("what", nargs="*", choices=[[], *known], help="default: all")
    wanted = parser.parse_args().what or known
    needed = ["service", "worker-cpu"] if COMPOSE in wanted else []
    with tempfile.TemporaryDirectory(prefix="slipway-prove-") as folder:
        made: dict[str, Path] = {}
        for name in [each for each in IMAGES if each in (*wanted, *needed)]:
            made[name] = Path(folder) / name / IMAGES[name].stage / "opt" / "slipway"
            _say(name, prove(IMAGES[name], Path(folder) / name))
        if COMPOSE in wanted:
            together = Path(folder) / COMPOSE
            together.mkdir()
            _say(COMPOSE, run_compose_services(made["service"], made["worker-cpu"], together))


def _say(name: str, lines: Iterator[str]) -> None:
    for line in lines:
        sys.stdout.write(f"{name}: {line}\n")
        sys.stdout.flush()


def prove(image: Image, folder: Path) -> Iterator[str]:
    """Test one image and yield the results as lines; raise if the image would not work."""
    stages = stages_of((ROOT / "docker" / image.dockerfile).read_text())
    follower = Follower(stages=stages, context=ROOT, folder=folder, left_out=[])
    began = time.monotonic()
    root = follower.follow(image.stage)
    took = time.monotonic() - began
    sizes = [f"{_size(root / place) / 1e6:,.0f} MB in /{place}" for place in _OWN if (root / place).exists()]
    yield f"stage {image.stage} followed in {took:.0f} s; {', '.join(sizes)}"
    python = root / "opt" / "slipway" / "bin" / "python"
    present = subprocess.run([*CLEAN, python, "-c", f"import {_FAMILIES}"], capture_output=True, check=False)
    assert (present.returncode == 0) is image.holds_torch, "torch belongs into workers, and nowhere else"
    subprocess.run([*CLEAN, python, "-c", f"import {image.imports}"], check=True, cwd=folder)
    yield f"imports {image.imports}{f', {_FAMILIES}' if image.holds_torch else '; has no torch'}"
    ahead = root / "var" / "lib" / "slipway"
    assert not ahead.exists() or _size(ahead) > 1e6, (
        "nothing was compiled ahead: a worker would fail likewise"
    )
    for command in follower.left_out:
        yield f"not run here: {command}"


def _size(folder: Path) -> int:
    """Return the bytes that a folder takes on disk."""
    return sum(os.lstat(path).st_blocks * 512 for path in folder.rglob("*"))


if __name__ == "__main__":
    main()
