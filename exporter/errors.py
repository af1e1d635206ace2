"""Everything that can go wrong in an export, as a tree; each leaf has a stable code.

ExportError
├── InvalidSpec              the request contradicts itself or what the model offers
├── InvalidPipelineConfig    the pipeline config does not parse or contradicts itself
│   └── UnsupportedConfig    it parses, and asks for something Slipway does not build
├── InvalidRows              a row, column or file of the input rows cannot be used
├── CheckpointError
│   ├── CheckpointUnreadable   not a checkpoint, damaged, or asks to run code
│   └── CheckpointMismatch     checkpoint and model disagree on names, shapes or dtypes
├── DimPlanViolated          the traced program's sizes are not those of the plan
│   ├── DimsConflict           the model requires sizes to be equal that the plan keeps apart
│   └── DimSpecialised         tracing narrowed or fixed a size that the plan lets vary
├── TraceFailed              torch.export could not capture the tower
├── CompileFailed            AOTInductor could not build the package
├── VerificationFailed       the package does not compute what eager computes
│   └── PackageCrashed         the process that ran the package died
├── InvalidArtifact          a published artifact is incomplete or damaged
├── AlreadyPublished         the destination key exists; keys are never overwritten
├── SourceNotFound           a URI names nothing
├── StorageError             an object store refused or could not be reached (may be retryable)
└── AttemptFailed            the attempt's processes ended without an outcome
    ├── AttemptTimedOut      they took longer than they may
    └── TowerDied            the process of one tower ended without a result
"""


class ExportError(Exception):
    """Base of the tree: a stable code, what happened, and what to do about it."""

    code: str = "export_error"
    retryable: bool = False
    report: str = ""  # what torch had to say, where that is longer than a message

    def __init__(self, message: str, *, hint: str = "", where: str = "") -> None:
        """Say what happened (`message`), what to do (`hint`) and at which field, line or file (`where`)."""
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.where = where


class InvalidSpec(ExportError):
    """The request contradicts itself or what the model offers."""

    code = "invalid_spec"


class InvalidPipelineConfig(ExportError):
    """The pipeline config does not parse or contradicts itself."""

    code = "invalid_pipeline_config"


class UnsupportedConfig(InvalidPipelineConfig):
    """The pipeline config parses, and asks for something Slipway does not build."""

    code = "unsupported_config"


class InvalidRows(ExportError):
    """A row, column or file of the input rows cannot be used."""

    code = "invalid_rows"


class CheckpointError(ExportError):
    """The checkpoint cannot be used."""

    code = "checkpoint_error"


class CheckpointUnreadable(CheckpointError):
    """Not a checkpoint, damaged, or asks to run code while being opened."""

    code = "checkpoint_unreadable"


class CheckpointMismatch(CheckpointError):
    """Checkpoint and model disagree on names, shapes or dtypes."""

    code = "checkpoint_mismatch"

    def __init__(
        self,
        *,
        missing: list[str],
        unexpected: list[str],
        mismatched: list[str],
        where: str = "",
    ) -> None:
        """Carry the evidence: `mismatched` entries read "name: checkpoint (…), model (…)"."""
        parts = [
            f"{len(names)} {kind}: {', '.join(names[:5])}{', …' if len(names) > 5 else ''}"
            for kind, names in (
                ("missing", missing),
                ("unexpected", unexpected),
                ("mismatched", mismatched),
            )
            if names
        ]
        super().__init__(
            "checkpoint and model disagree; " + "; ".join(parts),
            hint="export with the pipeline config this checkpoint was trained with",
            where=where,
        )
        self.missing, self.unexpected, self.mismatched = missing, unexpected, mismatched


class DimPlanViolated(ExportError):
    """The traced program's sizes are not those of the plan."""

    code = "dim_plan_violated"


class DimsConflict(DimPlanViolated):
    """The model requires sizes to be equal that the plan keeps apart."""

    code = "dims_conflict"


class DimSpecialised(DimPlanViolated):
    """Tracing narrowed or fixed a size that the plan lets vary."""

    code = "dim_specialised"


class TraceFailed(ExportError):
    """torch.export could not capture the tower."""

    code = "trace_failed"


class CompileFailed(ExportError):
    """AOTInductor could not build the package."""

    code = "compile_failed"


class VerificationFailed(ExportError):
    """The package does not compute what eager computes."""

    code = "verification_failed"


class PackageCrashed(VerificationFailed):
    """The process that ran the package died."""

    code = "package_crashed"


class InvalidArtifact(ExportError):
    """A published artifact is incomplete or damaged."""

    code = "invalid_artifact"


class AlreadyPublished(ExportError):
    """The destination key exists; keys are never overwritten."""

    code = "already_published"


class SourceNotFound(ExportError):
    """A URI names nothing."""

    code = "source_not_found"


class StorageError(ExportError):
    """An object store refused or could not be reached."""

    code = "storage_error"
    retryable = True

    def __init__(self, message: str, *, hint: str = "", where: str = "", retryable: bool = True) -> None:
        """As every error; `retryable=False` where trying again cannot help, as with denied access."""
        super().__init__(message, hint=hint, where=where)
        self.retryable = retryable


class AttemptFailed(ExportError):
    """The attempt's processes ended without an outcome."""

    code = "attempt_failed"
    retryable = True


class AttemptTimedOut(AttemptFailed):
    """The attempt took longer than it may; it would again."""

    code = "attempt_timed_out"
    retryable = False


class TowerDied(AttemptFailed):
    """The process of one tower ended without a result."""

    code = "tower_died"

    def __init__(self, message: str) -> None:
        super().__init__(
            message, hint="SIGKILL is most often too little memory; else the attempt's log ends with the cause"
        )
