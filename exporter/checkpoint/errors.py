"""Errors of checkpoints whose tensors are all there, and are not those of a model to serve."""

from exporter.errors import CheckpointError
from exporter.redaction import name_first


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
