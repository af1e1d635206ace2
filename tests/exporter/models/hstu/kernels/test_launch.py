"""What kernels are given: numbers where they look for them."""

import torch

from exporter.models.hstu.kernels.launch import by_columns, shared_bytes


def test_columns_that_are_apart_are_copied_side_by_side() -> None:
    turned = torch.rand(5, 3).T
    given = by_columns(turned)
    assert given.stride(1) == 1
    assert torch.equal(given, turned)


def test_rows_may_be_apart() -> None:
    some = torch.rand(5, 9)[:, 2:6]
    assert by_columns(some) is some


def test_without_a_gpu_to_ask_it_is_what_an_sm_90_has() -> None:
    assert shared_bytes(torch.device("cpu")) == 227 * 1024
