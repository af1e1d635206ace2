"""The end of a layer, by torch's operators and by kernels."""

import pytest
import torch

from exporter.models.hstu.gated_output import GatedOutput, TritonGatedOutput


@pytest.mark.parametrize("norm_heads", [0, 3])
def test_kernels_compute_the_same(norm_heads: int) -> None:
    torch.manual_seed(0)
    x, uvqk, attended = torch.randn(5, 8), torch.randn(5, 40), torch.randn(5, 12)
    weights = torch.randn(norm_heads or 12), torch.randn(norm_heads or 12), torch.randn(36, 8)
    expected, computed = (
        kind(norm_heads=norm_heads, dropout=0.5).eval()(x, uvqk, attended, *weights)
        for kind in (GatedOutput, TritonGatedOutput)
    )
    torch.testing.assert_close(computed, expected)


def test_each_head_is_normed_by_itself() -> None:
    x, uvqk = torch.zeros(1, 4), torch.full((1, 4), 20.0)
    attended = torch.tensor([[1.0, 3.0, 100.0, 300.0]])
    third = torch.cat([torch.zeros(8, 4), torch.eye(4)])  # of [u, a, u * norm(a)]
    output = GatedOutput(norm_heads=2, dropout=0.0).eval()
    normed = output(x, uvqk, attended, torch.ones(2), torch.zeros(2), third) / 20
    torch.testing.assert_close(normed, torch.tensor([[-1.0, 1.0, -1.0, 1.0]]))
