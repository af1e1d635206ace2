"""Recall at k: the share of users whose held-out item is among the k best items they have not rated yet."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Scores = NDArray[np.float32]  # users by items


def recall_at(
    k: int,
    scores: Scores,
    item_ids: Sequence[int],
    heldout: Sequence[int],
    seen: Sequence[Sequence[int]],
) -> float:
    """Return recall at k; `scores[user, place]` is for item `item_ids[place]`, `heldout` and `seen` per user.

    Items with higher scores come first; among equal scores, the item that is listed first.
    """
    place_of = {item_id: place for place, item_id in enumerate(item_ids)}
    hits = 0
    for user_scores, target, before in zip(scores, heldout, seen, strict=True):
        ranked = user_scores.astype(np.float64)
        ranked[[place_of[item_id] for item_id in before]] = -np.inf
        hits += place_of[target] in np.argsort(-ranked, kind="stable")[:k]
    return hits / len(heldout)


def embedding_scores(users: NDArray[np.float32], items: NDArray[np.float32]) -> Scores:
    """Score each item for each user by the inner product (for unit vectors, the cosine)."""
    return users @ items.T


def popularity_scores(users: int, ratings: Sequence[int]) -> Scores:
    """Score items by their number of ratings, the same for every user: the baseline."""
    return np.tile(np.asarray(ratings, dtype=np.float32), (users, 1))
