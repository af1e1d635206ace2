"""The images without an engine: follow their install steps, start what they hold, say how large it is.

`python -m deploy.prove [service] [worker-cpu]`. The environments are made at other paths than in the
images, from the same files with the same digests, by the same commands.
"""

import argparse
import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from deploy.dockerfile import CLEAN, Follower, stages_of

ROOT = Path(__file__).parents[1]
_START_S = 60.0
_FAMILIES = "torch, torchrec, fbgemm_gpu"


@dataclass(frozen=True)
class Image:
    """An image: its Dockerfile, its stage, and what to try in its environment."""

    dockerfile: str
    stage: str
    holds_torch: bool
    module: str
    then: Callable[[Path], None]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m deploy.prove", description=__doc__)
    parser.add_argument("images", nargs="*", choices=[[], *IMAGES], help="default: all")
    for name in parser.parse_args().images or IMAGES:
        with tempfile.TemporaryDirectory(prefix="slipway-prove-") as folder:
            for line in prove(IMAGES[name], Path(folder)):
                sys.stdout.write(f"{name}: {line}\n")
                sys.stdout.flush()


def prove(image: Image, folder: Path) -> Iterator[str]:
    """What was found, line by line; raises where an image would not do."""
    stages = stages_of((ROOT / "docker" / image.dockerfile).read_text())
    follower = Follower(stages=stages, context=ROOT, folder=folder, left_out=[])
    began = time.monotonic()
    environment = follower.follow(image.stage) / "opt" / "slipway"
    yield f"installed in {time.monotonic() - began:.0f} s; {_size(environment) / 1e6:,.0f} MB"
    python = environment / "bin" / "python"
    present = subprocess.run([*CLEAN, python, "-c", f"import {_FAMILIES}"], capture_output=True, check=False)
    assert (present.returncode == 0) is image.holds_torch, "torch belongs into workers, and nowhere else"
    subprocess.run([*CLEAN, python, "-c", f"import {image.module}"], check=True, cwd=folder)
    yield f"imports {image.module}, {'with' if image.holds_torch else 'without'} torch"
    image.then(python)
    yield "its program starts and answers its probe"
    for command in follower.left_out:
        yield f"not run here: {command}"


def _answers(python: Path) -> None:
    """The API starts from its environment and is healthy; it needs no Redis for that."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    uvicorn = [*CLEAN, str(python), "-m", "uvicorn", "--factory", "service.app:create_app", f"--port={port}"]
    with tempfile.TemporaryDirectory() as folder, subprocess.Popen(uvicorn, cwd=folder) as api:
        try:
            _wait_for(f"http://127.0.0.1:{port}/healthz")
        finally:
            api.terminate()


def _wait_for(url: str) -> None:
    deadline = time.monotonic() + _START_S
    while True:
        try:
            with urllib.request.urlopen(url, timeout=2):
                return
        except (OSError, urllib.error.URLError):
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)


def _compiles(python: Path) -> None:
    """The worker's environment holds what compiling takes, but for the C++ compiler of its image."""
    with tempfile.TemporaryDirectory() as folder:
        program = "from exporter.pipeline import export; import worker.attempt; from cli.main import main"
        subprocess.run([*CLEAN, python, "-c", program], check=True, cwd=folder)
        subprocess.run(
            [python, "-m", "celery", "--version"], check=True, cwd=folder, stdout=subprocess.DEVNULL
        )


def _size(folder: Path) -> int:
    """Bytes on disk."""
    return sum(os.lstat(path).st_blocks * 512 for path in folder.rglob("*"))


IMAGES: Mapping[str, Image] = {
    "service": Image("service.Dockerfile", "build", holds_torch=False, module="service.app", then=_answers),
    "worker-cpu": Image(
        "worker.Dockerfile", "install-cpu", holds_torch=True, module="worker.app", then=_compiles
    ),
}

if __name__ == "__main__":
    main()
