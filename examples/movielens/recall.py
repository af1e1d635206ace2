"""Recall at k: of how many users is the held-out item among the k best that they have not rated yet?"""

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
    """`scores[user, place]` is of item `item_ids[place]`; `heldout` and `seen` are per user.

    An item with a higher score wins; among equals the one listed first does.
    """
    place_of = {item_id: place for place, item_id in enumerate(item_ids)}
    hits = 0
    for user_scores, target, before in zip(scores, heldout, seen, strict=True):
        ranked = user_scores.astype(np.float64)
        ranked[[place_of[item_id] for item_id in before]] = -np.inf
        hits += place_of[target] in np.argsort(-ranked, kind="stable")[:k]
    return hits / len(heldout)


def embedding_scores(users: NDArray[np.float32], items: NDArray[np.float32]) -> Scores:
    """How well each item suits each user: the inner product (of unit vectors, the cosine)."""
    return users @ items.T


def popularity_scores(users: int, ratings: Sequence[int]) -> Scores:
    """The baseline: every user is offered what was rated most."""
    return np.tile(np.asarray(ratings, dtype=np.float32), (users, 1))
