"""All lies, by what they are about."""

import torch
from torch import Tensor

from tests.planted.lies import (
    about_cache,
    about_calls,
    about_code,
    about_packages,
    about_publishing,
    about_scripted,
)
from tests.planted.lies.compiler import change_output
from tests.planted.lies.lie import Lie, Plant

LIES: tuple[Lie, ...] = (
    *about_code.LIES,
    *about_scripted.LIES,
    *about_cache.LIES,
    *about_calls.LIES,
    *about_publishing.LIES,
)


def _wrong_at(rows: int) -> Plant:
    def change(score: Tensor) -> Tensor:
        return torch.where(torch.full((), score.shape[0]) == rows, score * 1.01, score)

    return change_output("score", change)


# Lies that an export cannot find: no case has these numbers of rows.
AT_ONE_SIZE = {
    rows: Lie(
        name=f"at_{rows}_rows",
        does=f"a score is 1 % too large where there are {rows} rows",
        plant=_wrong_at(rows),
        code="",
        says=(),
        family="ScorerFamily",
    )
    for rows in (37, 389, 503)
}


def lie_named(name: str) -> Lie:
    """Return the lie of this name."""
    return next(lie for lie in (*LIES, *AT_ONE_SIZE.values(), *about_packages.FLIPS) if lie.name == name)
