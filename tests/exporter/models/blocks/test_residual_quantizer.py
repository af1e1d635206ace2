"""Residual quantisers of random settings against their formula, written row by row with arrays."""

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import nn

from exporter.config.blocks.residual_quantizer import Distance, ResidualQuantizerConfig
from exporter.models.blocks.residual_quantizer import Centroids, LearnedCodebook, ResidualQuantizer
from exporter.models.blocks.semantic_ties import settle_ties
from tests.exporter.models.random_configs import Draw, over_random_configs

Array = NDArray[np.float64]


def drawn(draw: Draw, *, width: int) -> ResidualQuantizer:
    codebooks = draw.widths()
    kind = draw.choice([LearnedCodebook, Centroids])
    config = ResidualQuantizerConfig(
        codebooks=codebooks,
        normalize_residuals=draw.flag(),
        distance=draw.choice(list(Distance)),
        candidates=draw.choice([0, 1, draw.randint(1, codebooks[-1])]),
    )
    quantizer = ResidualQuantizer(config, [kind(rows, width) for rows in codebooks])
    draw.weights(quantizer)
    return quantizer


@over_random_configs
def test_codes_and_candidates_are_those_of_the_formula(draw: Draw) -> None:
    width, count = draw.randint(2, 9), draw.randint(1, 40)  # by the cosine, numbers are all alike
    quantizer = drawn(draw, width=width)
    x_BD = torch.randn(count, width)
    with torch.no_grad():
        outputs = quantizer(x_BD)
    books = [book.rows.detach().double().numpy() for book in quantizer.codebooks]
    for row, x in enumerate(x_BD.double().numpy()):
        codes, distances = _walk(x, books, quantizer)
        assert outputs["codes"][row].tolist() == codes
        if quantizer._candidates:
            nearest = np.argsort(distances, kind="stable")[: quantizer._candidates]
            ids = [[*codes[:-1], int(last)] for last in nearest]
            assert outputs["candidate_codes"][row].tolist() == [code for each in ids for code in each]
            np.testing.assert_allclose(
                outputs["candidate_scores"][row], distances[nearest], rtol=0, atol=1e-5
            )
    assert outputs["codes"].dtype is torch.int64


@over_random_configs
def test_a_row_is_quantised_alike_in_batches_of_every_size(draw: Draw) -> None:
    """Products of matrices are summed in another order where the batch is larger."""
    quantizer = drawn(draw, width=(width := draw.randint(2, 9)))
    x_BD = torch.randn(60, width)
    with torch.no_grad():
        whole, alone = quantizer(x_BD), quantizer(x_BD[: (few := draw.randint(1, 26))])
    for name, values in alone.items():
        if values.is_floating_point():
            torch.testing.assert_close(values, whole[name][:few], rtol=0, atol=1e-6)
        else:
            assert torch.equal(values, whole[name][:few])


@over_random_configs
def test_the_outputs_of_a_vector_with_other_rounding_are_settled(draw: Draw) -> None:
    quantizer = drawn(draw, width=(width := draw.randint(2, 9)))
    x_BD = torch.randn(30, width)
    error = 10.0 ** draw.randint(-6, -2)
    noise = (torch.rand_like(x_BD) * 2 - 1) * x_BD.abs().amax(dim=1, keepdim=True) * error
    with torch.no_grad():
        expected, actual = quantizer(x_BD), quantizer(x_BD + noise)
        settled = settle_ties(quantizer, x_BD, expected, actual, 1.01 * error)
    for name, values in settled.items():
        if not values.is_floating_point():
            assert torch.equal(values, actual[name])


@over_random_configs
def test_a_code_that_is_not_nearest_is_not_settled(draw: Draw) -> None:
    quantizer = drawn(draw, width=(width := draw.randint(2, 9)))
    x_BD = torch.randn(20, width)
    with torch.no_grad():
        expected = quantizer(x_BD)
        changed = {name: values.clone() for name, values in expected.items()}
        place = draw.randrange(len(quantizer.codebooks))
        rows = len(quantizer.codebooks[place].rows)
        changed["codes"][:, place] = (changed["codes"][:, place] + draw.randint(1, rows + 2)) % (rows + 3)
        if "candidate_codes" in changed and draw.flag():
            changed["candidate_codes"].view(20, -1, len(quantizer.codebooks))[:, :, place] = changed["codes"][
                :, place : place + 1
            ]
        settled = settle_ties(quantizer, x_BD, expected, changed, 1e-7)
    same = (changed["codes"] == expected["codes"]).all(dim=1)
    assert torch.equal(settled["codes"][~same], expected["codes"][~same])


def test_two_equal_rows_are_a_tie_and_their_scores_count() -> None:
    quantizer = _of_rows([[0.0, 0.0], [3.0, 0.0], [3.0, 0.0]], candidates=2)
    x_BD = torch.tensor([[2.9, 0.0], [0.1, 0.0]])
    expected = quantizer(x_BD)
    assert expected["codes"].tolist()[0] in ([1], [2])
    other = 3 - int(expected["codes"][0, 0])
    flipped = {name: values.clone() for name, values in expected.items()}
    flipped["codes"][0, 0] = other
    flipped["candidate_codes"][0] = flipped["candidate_codes"][0].flip(0)
    settled = settle_ties(quantizer, x_BD, expected, flipped, 1e-5)
    assert settled["codes"].tolist() == [[other], [0]]
    assert torch.allclose(settled["candidate_scores"], expected["candidate_scores"])


@pytest.mark.parametrize("gap", [1e-7, 1e-3])
def test_a_choice_within_the_error_is_a_tie_and_one_beyond_it_is_not(gap: float) -> None:
    quantizer = _of_rows([[0.0, 0.0], [2.0, 0.0]], candidates=0)
    x_BD = torch.tensor([[1.0 - gap, 0.0]], dtype=torch.float64)
    expected, actual = {"codes": torch.tensor([[0]])}, {"codes": torch.tensor([[1]])}
    settled = settle_ties(quantizer, x_BD, expected, actual, 1e-5)
    assert settled["codes"].item() == int(gap < 1e-5)


@pytest.mark.parametrize(
    ("codes", "candidates"),
    [([1], [0, 1]), ([0], [0, 0]), ([0], [0, 7]), ([0], [0, -1]), ([0], [1, 0]), ([0], [0, 2])],
    ids=["another first", "twice the same", "past the end", "negative", "out of order", "a farther one"],
)
def test_candidates_that_do_not_fit_are_not_settled(codes: list[int], candidates: list[int]) -> None:
    quantizer = _of_rows([[0.0, 0.0], [1.0, 0.0], [5.0, 0.0]], candidates=2)
    x_BD = torch.tensor([[0.2, 0.0]])
    expected = quantizer(x_BD)
    actual = {
        "codes": torch.tensor([codes]),
        "candidate_codes": torch.tensor([candidates]),
        "candidate_scores": expected["candidate_scores"],
    }
    settled = settle_ties(quantizer, x_BD, expected, actual, 1e-5)
    assert settled["candidate_codes"].tolist() == [[0, 1]]
    assert settled["codes"].tolist() == [[0]]


def _of_rows(rows: list[list[float]], *, candidates: int) -> ResidualQuantizer:
    config = ResidualQuantizerConfig(codebooks=(len(rows),), normalize_residuals=False, candidates=candidates)
    book = LearnedCodebook(len(rows), 2)
    book.embedding.weight = nn.Parameter(torch.tensor(rows), requires_grad=False)
    return ResidualQuantizer(config, [book])


def _walk(x: Array, books: list[Array], quantizer: ResidualQuantizer) -> tuple[list[int], Array]:
    """Return the codes of a vector, and its distances to the rows of the last codebook."""
    codes, distances = [], np.empty(0)
    for rows in books:
        if quantizer._scaled:
            x = x / max(float(np.linalg.norm(x)), 1e-12)
        if quantizer._distance is Distance.COSINE:
            distances = np.array([-_unit(x) @ _unit(row) for row in rows])
        else:
            distances = np.array([((x - row) ** 2).sum() for row in rows])
        codes.append(int(distances.argmin()))
        x = x - rows[codes[-1]]
    return codes, distances


def _unit(x: Array) -> Array:
    unit: Array = x / max(float(np.linalg.norm(x)), 1e-12)
    return unit
