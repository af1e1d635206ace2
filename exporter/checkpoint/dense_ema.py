"""A checkpoint whose dense weights are the averages that training kept beside them (`dense_ema/`)."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor

from exporter.checkpoint.dcp import DcpCheckpoint
from exporter.checkpoint.keymap import DENSE_EMBEDDINGS
from exporter.checkpoint.tensors import HashFiles, Piece, TensorMeta, hash_files
from exporter.errors import CheckpointMismatch

AVERAGES = "dense_ema"  # TorchEasyRec's folder for them, beside model/
_UPDATES = "__n_averaged__"  # the number of updates in the averages; it is not a weight


@dataclass(frozen=True, kw_only=True)
class _Place:
    """The average of one weight: a tensor, or a row of one."""

    weight: str
    average: str
    meta: TensorMeta  # of the weight
    row: int | None = None


def _unstack(name: str, meta: TensorMeta, known: Mapping[str, TensorMeta]) -> tuple[_Place, ...]:
    """Return the places of the weights that a tensor averages, one unless it is of dense embeddings.

    A model has their weights feature by feature. Their averages are stacked, the features of one key in
    alphabetical order; those of a feature of several numbers are not, as it has a key of its own.
    """
    prefix, suffix = f"{name}_", ".weight"
    if name in known or DENSE_EMBEDDINGS not in name:
        return (_Place(weight=name, average=name, meta=meta),)
    features = sorted(
        each.removeprefix(prefix).removesuffix(suffix)
        for each in known
        if each.startswith(prefix) and each.endswith(suffix)
    )
    if len(features) == 1 and known[prefix + features[0] + suffix] == meta:
        return (_Place(weight=prefix + features[0] + suffix, average=name, meta=meta),)
    if not features or meta.shape[0] != len(features):
        return (_Place(weight=name, average=name, meta=meta),)
    row = TensorMeta(shape=meta.shape[1:], dtype=meta.dtype)
    return tuple(
        _Place(weight=prefix + feature + suffix, average=name, meta=row, row=number)
        for number, feature in enumerate(features)
    )


class AveragedCheckpoint:
    """The weights of `model/`, replaced by their averages in `dense_ema/` if it has any."""

    def __init__(self, weights: DcpCheckpoint, averages: DcpCheckpoint) -> None:
        """Match the averages with the weights.

        Raises:
            CheckpointMismatch: an average belongs to no weight, or has another shape or dtype.
        """
        self._weights, self._averages = weights, averages
        found = {name: meta for name, meta in averages.tensors().items() if name != _UPDATES}
        known = weights.tensors()
        self._places = {place.weight: place for name in found for place in _unstack(name, found[name], known)}
        self.averaged = frozenset(self._places)
        unexpected = sorted(name for name in self.averaged if name not in known)
        mismatched = [
            f"{name}: {AVERAGES} ({place.meta}), model ({known[name]})"
            for name, place in sorted(self._places.items())
            if name in known and place.meta != known[name]
        ]
        if unexpected or mismatched:
            raise CheckpointMismatch(missing=[], unexpected=unexpected, mismatched=mismatched, where=AVERAGES)

    def tensors(self) -> Mapping[str, TensorMeta]:
        return self._weights.tensors()

    def read(self, name: str) -> Tensor:
        place = self._places.get(name)
        if place is None or place.row is None:
            return self._holder(name).read(place.average if place else name)
        return self._averages.rows(place.average, place.row, place.row + 1)[0]

    def rows(self, name: str, first: int, end: int) -> Tensor:
        return self._holder(name).rows(name, first, end)

    def pieces(self, name: str) -> tuple[Piece, ...]:
        place = self._places.get(name)
        if place is None or place.row is None:
            return self._holder(name).pieces(place.average if place else name)
        found = ((piece, place.row - piece.offset[0]) for piece in self._averages.pieces(place.average))
        return tuple(
            Piece(offset=piece.offset[1:], raw=piece.raw[row], dtype=piece.dtype)
            for piece, row in found
            if 0 <= row < piece.shape[0]
        )

    def digest(self, hashed: HashFiles = hash_files) -> str:
        both = f"{self._weights.digest(hashed)}  model\n{self._averages.digest(hashed)}  {AVERAGES}\n"
        return hashlib.sha256(both.encode()).hexdigest()

    def _holder(self, name: str) -> DcpCheckpoint:
        return self._averages if name in self.averaged else self._weights
