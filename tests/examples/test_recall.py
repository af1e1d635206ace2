"""Recall counts the users whose held-out item is ranked high enough."""

import numpy as np
import pytest

from examples.movielens.recall import embedding_scores, popularity_scores, recall_at

ITEMS = [101, 102, 103]
SCORES = np.array([[3, 2, 1], [3, 2, 1]], dtype=np.float32)


@pytest.mark.parametrize(("k", "expected"), [(1, 0.5), (2, 0.5), (3, 1.0)])
def test_counts_users_whose_item_is_among_the_k_best(k: int, expected: float) -> None:
    assert recall_at(k, SCORES, ITEMS, heldout=[101, 103], seen=[[], []]) == expected


def test_items_seen_before_are_not_recommended_again() -> None:
    assert recall_at(1, SCORES, ITEMS, heldout=[103, 102], seen=[[101, 102], [101]]) == 1.0


def test_equal_scores_do_not_favour_the_held_out_item() -> None:
    scores = np.zeros((1, 3), dtype=np.float32)
    assert recall_at(1, scores, ITEMS, heldout=[103], seen=[[]]) == 0.0


def test_popularity_offers_everyone_the_same() -> None:
    scores = popularity_scores(2, [5, 9, 1])
    assert recall_at(1, scores, ITEMS, heldout=[102, 101], seen=[[], [102]]) == 1.0


def test_embeddings_are_compared_by_inner_product() -> None:
    users, items = np.eye(2, dtype=np.float32), np.array([[1, 0], [0, 2], [3, 3]], dtype=np.float32)
    assert embedding_scores(users, items).tolist() == [[1, 0, 3], [0, 2, 3]]
