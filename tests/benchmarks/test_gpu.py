"""The kernels' checks and measurements need torch and Triton, and nothing else that is installed here."""

import subprocess
import sys

# An import of anything that torch and triton do not bring fails, as it would where there is nothing else.
_ALONE = """
import importlib.abc, sys
class Missing(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name.partition(".")[0] in {missing!r}:
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Missing())
import benchmarks.gpu.__main__, processes.guard
"""
_MISSING = (
    "fbgemm_gpu",
    "torchrec",
    "pydantic",
    "pyarrow",
    "google",
    "structlog",
    "safetensors",
    "boto3",
    "redis",
)


def test_kernels_are_checked_and_measured_with_torch_and_triton_alone() -> None:
    program = _ALONE.format(missing=_MISSING)
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
