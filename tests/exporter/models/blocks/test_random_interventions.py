"""Interventions of random sizes against the formula, with every reflection as a matrix."""

import numpy as np
import torch

from exporter.models.blocks.multi_task.intervention import Intervention, RotateLayer
from tests.exporter.models.formulas import Array, State, below, require_near, state_of
from tests.exporter.models.random_configs import Draw, over_random_configs


@over_random_configs
def test_the_difference_in_the_common_space_is_added(draw: Draw) -> None:
    rank = draw.randint(1, 6)
    width, source = rank + draw.width(), rank + draw.width()
    layer = Intervention(width, source, rank).eval()
    for rotation in (layer.base_rotate_layer, layer.source_rotate_layer):
        _draw_rotation(draw, rotation)
    state, rows = state_of(layer), draw.width(5)
    x, sources = torch.randn(rows, width), torch.randn(rows, source)
    base, other = (
        _rotation(below(state, f"{name}.parametrizations.weight"))
        for name in ("base_rotate_layer", "source_rotate_layer")
    )
    np.testing.assert_allclose(base.T @ base, np.eye(rank), atol=1e-5)
    b, s = x.double().numpy(), sources.double().numpy()
    with torch.no_grad():
        require_near(layer(x, sources), (b @ base - s @ other) @ base.T + b)


def test_torch_computes_the_same_rotation() -> None:
    torch.manual_seed(3)
    ours = RotateLayer(9, 4)
    theirs = torch.nn.utils.parametrizations.orthogonal(torch.nn.Linear(4, 9, bias=False))
    theirs.load_state_dict(
        {
            "parametrizations.weight.original": torch.randn(9, 4).sign() * 0.7 + torch.eye(9, 4) * 0.9,
            "parametrizations.weight.0.base": torch.linalg.qr(torch.randn(9, 9))[0],
        }
    )
    ours.load_state_dict(theirs.state_dict())
    torch.testing.assert_close(ours.rotation(), theirs(torch.eye(4)).T, rtol=0, atol=0)


def _draw_rotation(draw: Draw, layer: RotateLayer) -> None:
    """Draw reflections, the columns' signs and the base."""
    state = layer.state_dict()
    original = state["parametrizations.weight.original"]
    width, rank = original.shape
    original.copy_(torch.randn(width, rank))
    original.diagonal().copy_(torch.tensor([draw.choice([-1.0, 1.0]) for _ in range(rank)]))
    state["parametrizations.weight.0.base"].copy_(torch.linalg.qr(torch.randn(width, width))[0])


def _rotation(state: State) -> Array:
    """Return base · H₁ … H_r, its first r columns times their signs, where H_i = I − τ_i v_i v_iᵀ."""
    original, product = state["original"], np.eye(len(state["original"]))
    for column in range(original.shape[1]):
        vector = np.where(np.arange(len(original)) > column, original[:, column], 0.0)
        vector[column] = 1.0
        product = product @ (np.eye(len(vector)) - 2 * np.outer(vector, vector) / np.dot(vector, vector))
    rotation: Array = state["0.base"] @ product[:, : original.shape[1]] * np.diag(original)
    return rotation
