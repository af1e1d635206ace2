"""Kernels on a GPU, at random sizes, against float64."""

import random

import pytest
import torch

from benchmarks.gpu.case import Case
from benchmarks.gpu.check import all_cases

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device"),
]


@pytest.mark.parametrize("case", all_cases(), ids=lambda case: case.name)
def test_it_computes_what_its_reference_does(case: Case) -> None:
    seed = random.SystemRandom().randrange(2**32)
    assert case.error(seed) <= case.bound, f"seed {seed}"
