"""Kernels on a GPU, at random sizes, against float64."""

import random

import pytest

from benchmarks.gpu.case import Case
from benchmarks.gpu.check import all_cases


@pytest.mark.parametrize("kernel", all_cases(), ids=lambda case: case.name)
def test_it_computes_what_its_reference_does(kernel: Case) -> None:
    seed = random.SystemRandom().randrange(2**32)
    assert kernel.error(seed) <= kernel.bound, f"seed {seed}"
