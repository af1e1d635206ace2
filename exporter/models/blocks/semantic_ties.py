"""Ties among semantic ids: choices of codes that the rounding of a vector decides.

R rows, D width, K rows of a codebook, L codebooks, C candidates.
"""

from collections.abc import Mapping

import torch
from torch import Tensor

from exporter.models.blocks.residual_quantizer import ResidualQuantizer


def settle_ties(
    quantizer: ResidualQuantizer,
    x_BD: Tensor,
    expected: Mapping[str, Tensor],
    actual: Mapping[str, Tensor],
    error: float,
) -> dict[str, Tensor]:
    """Return the expected outputs of the quantizer, with ties decided as in `actual`.

    A tie is a choice of rows each of which is the nearest to a vector that may be meant: one whose numbers
    differ from those of `x_BD` by at most `error` of the row's largest. A row of `actual` with any other
    difference stays as it is expected. The scores are then those of the rows that were chosen.
    """
    name = "candidate_codes" if "candidate_codes" in expected else "codes"
    same_shapes = all(each in actual and actual[each].shape == expected[each].shape for each in expected)
    if not same_shapes or not expected["codes"].shape[0]:
        return dict(expected)
    differs_B = (actual[name] != expected[name]).any(dim=1) | (actual["codes"] != expected["codes"]).any(
        dim=1
    )
    rows_R = differs_B.nonzero().squeeze(1)
    ids_RCL = actual[name][rows_R].unflatten(1, (-1, len(quantizer.codebooks)))
    is_tie_R, scores_RC = _follow(quantizer, x_BD[rows_R].double(), ids_RCL, error)
    is_tie_R &= (ids_RCL[:, 0] == actual["codes"][rows_R]).all(dim=1)
    settled = {each: tensor.clone() for each, tensor in expected.items()}
    for each, tensor in settled.items():
        decided = scores_RC if each == "candidate_scores" else actual[each][rows_R]
        tensor[rows_R[is_tie_R]] = decided[is_tie_R].to(tensor.dtype)
    return settled


def _follow(
    quantizer: ResidualQuantizer, x_RD: Tensor, ids_RCL: Tensor, error: float
) -> tuple[Tensor, Tensor]:
    """Return whether the choices of each row are ties, and the distances to the last rows chosen."""
    *firsts, last = (codebook.rows.double() for codebook in quantizer.codebooks)
    is_tie_R = (ids_RCL[:, :, :-1] == ids_RCL[:, :1, :-1]).all(dim=2).all(dim=1)
    residual_RD = x_RD
    error_R1 = error * x_RD.abs().amax(dim=1, keepdim=True) * x_RD.shape[1] ** 0.5
    for place, rows_KD in enumerate(firsts):
        residual_RD, error_R1 = _scale(quantizer, residual_RD, error_R1)
        code_R = ids_RCL[:, 0, place]
        is_tie_R &= (code_R >= 0) & (code_R < len(rows_KD))
        code_R = code_R.clamp(0, len(rows_KD) - 1)
        distances_RK = quantizer.distances(residual_RD, rows_KD)
        is_tie_R &= _is_nearest(quantizer, residual_RD, rows_KD, distances_RK, code_R, error_R1)
        residual_RD = residual_RD - rows_KD[code_R]
    residual_RD, error_R1 = _scale(quantizer, residual_RD, error_R1)
    last_RC = ids_RCL[:, :, -1]
    is_tie_R &= ((last_RC >= 0) & (last_RC < len(last))).all(dim=1)
    last_RC = last_RC.clamp(0, len(last) - 1)
    distances_RK = left_RK = quantizer.distances(residual_RD, last)
    for code_R in last_RC.unbind(dim=1):  # each is the nearest of those that the ones before it left
        is_tie_R &= _is_nearest(quantizer, residual_RD, last, left_RK, code_R, error_R1)
        left_RK = left_RK.scatter(1, code_R.unsqueeze(1), torch.inf)
    return is_tie_R, distances_RK.gather(1, last_RC)


def _scale(quantizer: ResidualQuantizer, residual_RD: Tensor, error_R1: Tensor) -> tuple[Tensor, Tensor]:
    """Return the residuals as they are compared, and by what length those may be wrong."""
    scaled_RD = quantizer.scale(residual_RD)
    if scaled_RD is residual_RD:
        return residual_RD, error_R1
    # Two vectors that are an error apart are at most twice the error, by the length, apart once scaled.
    return scaled_RD, 2 * error_R1 / residual_RD.norm(dim=1, keepdim=True).clamp(min=1e-12)


def _is_nearest(
    quantizer: ResidualQuantizer,
    residual_RD: Tensor,
    rows_KD: Tensor,
    distances_RK: Tensor,
    code_R: Tensor,
    error_R1: Tensor,
) -> Tensor:
    """Return whether no row is nearer than the chosen one by more than the error explains; none is taken."""
    leeway_RK = quantizer.leeway(residual_RD, rows_KD[code_R], rows_KD, error_R1)
    distance_R1 = distances_RK.gather(1, code_R.unsqueeze(1))
    is_free_R = distance_R1.squeeze(1).isfinite()
    return is_free_R & (distance_R1 <= distances_RK + leeway_RK).all(dim=1)
