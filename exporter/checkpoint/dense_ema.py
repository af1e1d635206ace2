"""A checkpoint whose dense weights are the averages that training kept beside them (`dense_ema/`)."""

import hashlib
from collections.abc import Mapping

from torch import Tensor

from exporter.checkpoint.dcp import DcpCheckpoint
from exporter.checkpoint.tensors import HashFiles, Piece, TensorMeta, hash_files
from exporter.errors import CheckpointMismatch

AVERAGES = "dense_ema"  # TorchEasyRec's folder for them, beside model/
_UPDATES = "__n_averaged__"  # the number of updates in the averages; it is not a weight


class AveragedCheckpoint:
    """The weights of `model/`, replaced by their averages in `dense_ema/` if it has any."""

    def __init__(self, weights: DcpCheckpoint, averages: DcpCheckpoint) -> None:
        """Match the averages with the weights.

        Raises:
            CheckpointMismatch: an average belongs to no weight, or has another shape or dtype.
        """
        self._weights, self._averages = weights, averages
        found = averages.tensors()
        self.averaged = frozenset(found) - {_UPDATES}
        known = weights.tensors()
        unexpected = sorted(name for name in self.averaged if name not in known)
        mismatched = [
            f"{name}: {AVERAGES} ({found[name]}), model ({known[name]})"
            for name in sorted(self.averaged)
            if name in known and found[name] != known[name]
        ]
        if unexpected or mismatched:
            raise CheckpointMismatch(missing=[], unexpected=unexpected, mismatched=mismatched, where=AVERAGES)

    def tensors(self) -> Mapping[str, TensorMeta]:
        return self._weights.tensors()

    def read(self, name: str) -> Tensor:
        return self._holder(name).read(name)

    def rows(self, name: str, first: int, end: int) -> Tensor:
        return self._holder(name).rows(name, first, end)

    def pieces(self, name: str) -> tuple[Piece, ...]:
        return self._holder(name).pieces(name)

    def digest(self, hashed: HashFiles = hash_files) -> str:
        both = f"{self._weights.digest(hashed)}  model\n{self._averages.digest(hashed)}  {AVERAGES}\n"
        return hashlib.sha256(both.encode()).hexdigest()

    def _holder(self, name: str) -> DcpCheckpoint:
        return self._averages if name in self.averaged else self._weights
