import subprocess
import sys

import pytest
import torch

# An import of anything that torch and triton do not bring fails, as it would where there is nothing else.
_ALONE = """
import importlib.abc, sys
class Missing(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name.partition(".")[0] in {missing!r}:
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Missing())
import benchmarks.gpu.__main__
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


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, check=False, timeout=120
    )


def test_kernels_are_checked_and_measured_with_torch_and_triton_alone() -> None:
    ended = run("-c", _ALONE.format(missing=_MISSING))
    assert ended.returncode == 0, ended.stderr


@pytest.mark.skipif(torch.cuda.is_available(), reason="is about machines without a GPU")
def test_without_a_gpu_it_says_so() -> None:
    ended = run("-m", "benchmarks.gpu", "check")
    assert ended.returncode == 2
    assert "finds no CUDA device" in ended.stderr


def test_a_part_that_is_none_is_named() -> None:
    ended = run("-m", "benchmarks.gpu", "attenion")
    assert ended.returncode == 2
    assert "there is no part attenion" in ended.stderr
