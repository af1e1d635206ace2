"""Commands of the documents that no test runs as they stand, and why. All are parsed as far as that goes."""

import re
from collections.abc import Mapping

from tests.documents.markdown import Block

NO_ENGINE = "needs a container engine; `python -m deploy.prove` follows the images and runs their services"
NO_CLUSTER = "needs a cluster; tests/deploy renders the chart with the values of the pages"
NO_GPU = "needs a GPU, or half an hour and CUDA's compiler"
OWN_COMMAND = "a command of the project: CI or a maintainer runs it, or what it starts has tests of its own"
INSTALLS = "installs gigabytes; tests/architecture/test_wheels.py builds the wheels and tries them"
STAYS = "runs until it is interrupted; tests/launcher starts and ends the same programs"
CPP_RUNNER = "tests/e2e/test_cpp_loader.py builds and runs it"

# The beginning of a command, with its page in front where others are run -> the reason.
NOT_RUN: Mapping[str, str] = {
    "docker compose": NO_ENGINE,
    "docker build": NO_ENGINE,
    "docker run": NO_ENGINE,
    "kubectl": NO_CLUSTER,
    "helm install": NO_CLUSTER,
    "make up": STAYS,
    "slipway up": STAYS,
    "make gpu": NO_GPU,
    "python -m benchmarks.gpu": NO_GPU,
    "python3 -m benchmarks.gpu": NO_GPU,
    ". .gpu-kit/use": "needs the wheels of `make gpu-kit`; deploy.gpu_rehearsal runs it",
    "python -m deploy.gpu_rehearsal": "needs an interpreter with the torch of a GPU machine",
    "make": OWN_COMMAND,
    "python -m benchmarks": OWN_COMMAND,
    ". .venv/bin/activate": "activates the environment in which the tests run",
    "python -m tests.faults.report": "writes the tables of a whole run of `make faults` into the page",
    "pip install --find-links dist": INSTALLS,
    "pip install --no-deps torchrec": INSTALLS,
    "git tag": "makes a tag",
    "docs/commands.md: eval": "completes in the reader's shell: tests/cli/test_completion.py",
    "docs/commands.md: slipway verify": "needs an artifact: tests/e2e/test_prove.py",
    "docs/calls.md: curl -s $api/exports/$job/diff": "needs a judged release: tests/e2e/test_release_gate.py",
    "slipway diff promoted:feed": "needs a promoted release: tests/e2e/test_diff.py",
    "docs/serving.md: slipway export": "needs two hosts: tests/e2e/test_several_hosts.py",
    "docs/serving.md: cmake": CPP_RUNNER,
    "docs/serving.md: build/cpp_runner": CPP_RUNNER,
    "docs/torcheasyrec-folders.md: slipway export": "tests/e2e/test_torcheasyrec_folder.py exports so",
    "docs/triton.md: slipway export": "tests/e2e/test_triton.py exports so",
    "benchmarks/README.md: cmake": CPP_RUNNER,
    "benchmarks/README.md: build/cpp_runner": CPP_RUNNER,
    "docs/triton.md: curl -s localhost:8000": "asks Triton Server: tests/e2e/test_triton.py",
}


def reason_against(block: Block, command: str) -> str | None:
    """Return why a command is not run, or None if it is; the longest beginning counts."""
    for name in (f"{block.page}: {command}", command):
        fitting = [begin for begin in NOT_RUN if re.match(rf"{re.escape(begin)}(?!\w)", name)]
        if fitting:
            return NOT_RUN[max(fitting, key=len)]
    return None
