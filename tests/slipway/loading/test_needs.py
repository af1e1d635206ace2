"""A server needs torch for the loader, and none of Slipway's other dependencies."""

import subprocess
import sys

import pytest

from tests.slipway.loading.conftest import Artifacts

# What a server may lack: everything that pip installs for Slipway, and the rest of Slipway itself.
BLOCKED = (
    *("cli", "exporter", "jobs", "launcher", "processes", "service", "telemetry", "worker"),
    *("boto3", "botocore", "celery", "cryptography", "fastapi", "google", "httpx", "numpy", "packaging"),
    *("pyarrow", "pydantic", "pydantic_core", "pydantic_settings", "redis", "rich", "safetensors"),
    *("structlog", "torchrec", "yaml"),
)

PRELUDE = f"""
import sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {set(BLOCKED)!r}:
            raise ModuleNotFoundError(f"{{name}} is blocked", name=name)

sys.meta_path.insert(0, Blocked())
"""


def run(program: str) -> list[str]:
    ran = subprocess.run(
        [sys.executable, "-c", PRELUDE + program], capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.split()


def test_it_is_imported_without_the_others_and_without_the_compiler() -> None:
    compiler = "{'torch._inductor', 'torch._dynamo'}"
    assert run(f"import slipway.loader; print(*{compiler} & set(sys.modules))") == []


@pytest.mark.slow
def test_it_prepares_loads_calls_and_swaps_without_them(
    artifacts: Artifacts, tmp_path_factory: pytest.TempPathFactory
) -> None:
    into = tmp_path_factory.mktemp("prepared") / "two"
    # fbgemm's own Python half needs numpy.
    program = f"""
blocking = sys.meta_path.pop(0)
import fbgemm_gpu
sys.meta_path.insert(0, blocking)
import torch
from slipway.loader import load, prepare
prepare({str(artifacts.published("two"))!r}, {str(into)!r})
inputs = {{"id.lengths": torch.tensor([2, 1]), "id.values": torch.tensor([1, 2, 3])}}
with load({str(into)!r}, "user", check="all") as tower:
    tower(inputs)
    tower.swap({str(artifacts.prepared("two-new"))!r})
    print(*tower(inputs)["emb"].shape)
"""
    assert run(program) == ["2", "3"]
