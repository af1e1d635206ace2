"""Errors of weights, as leaves of the exporter's tree of errors.

CheckpointError
├── CodebooksNotFitted    semantic ids are not fitted: every item would have the same id
├── IdMapBroken           a table's map of ids is not in order or names rows that are not there
└── WeightsNotFinite      weights hold NaN or infinity: the training diverged
"""

from exporter.errors import CheckpointError
from exporter.redaction import name_first

_FEW = 5  # names in a message whose report has all of them


class CodebooksNotFitted(CheckpointError):
    """Codebooks of semantic ids have not been fitted: every item would have the same id."""

    code = "codebooks_not_fitted"
    advice = "export a checkpoint saved after training had ended, which is when codebooks are fitted"

    def __init__(self, flags: list[str]) -> None:
        """Take the names of the flags that are false, or are true beside rows of zeros."""
        super().__init__(
            f"{len(flags)} codebooks are not fitted: {name_first(flags)} is false, or its rows are zeros",
            where=flags[0],
        )


class IdMapBroken(CheckpointError):
    """A table's map from ids to rows is not in order, or names rows that the table does not have."""

    code = "id_map_broken"
    advice = "copy the checkpoint again, or export another step"


class WeightsNotFinite(CheckpointError):
    """Weights hold NaN or infinity."""

    code = "weights_not_finite"
    advice = "export a checkpoint from before the training diverged"

    def __init__(self, names: list[str]) -> None:
        """Take the names of the tensors that are not finite."""
        super().__init__(
            f"{len(names)} weights hold NaN or infinity: {name_first(names, most=_FEW)}", where=names[0]
        )
        self.report = "\n".join(names)
