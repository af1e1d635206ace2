"""Everything that can go wrong in an export, as a tree; each leaf has a stable code.

ExportError
├── InvalidSpec              the request contradicts itself or what the model offers
│   ├── WrongArchitecture      the machine is not of the requested target
│   └── UriNotAllowed          a URI lies where the caller, or the service, may not read or write
├── InvalidPipelineConfig    the pipeline config does not parse or contradicts itself
│   └── UnsupportedConfig    it parses, and asks for something Slipway does not build
├── FamilyError              a model family that is not one of TorchEasyRec's
│   ├── FamilyNotListed        the operator has not listed it
│   ├── FamilyUnusable         no installed package or file offers it, or what is offered is no family
│   ├── FamilyFailed           its own code raised
│   └── InvalidDeclaration     its declaration contradicts itself or its module
├── InvalidRows              a row, column or file of the input rows cannot be used
├── CheckpointError
│   ├── CheckpointUnreadable   not a checkpoint, damaged, or asks to run code
│   └── CheckpointMismatch     checkpoint and model disagree on names, shapes or dtypes
├── DimPlanViolated          the traced program's sizes are not those of the plan
│   ├── DimsConflict           the model requires sizes to be equal that the plan keeps apart
│   └── DimSpecialised         tracing narrowed or fixed a size that the plan lets vary
├── TorchUnsupported         the installed torch is not of the requested release, or lacks what Slipway needs
├── PassRefused              an edit of a traced program does not fit it
├── ShapeRuleMissing         a custom operator does not say what sizes it returns
├── TraceFailed              torch.export could not capture the tower
├── CompileFailed            AOTInductor could not build the package
├── WeightsDoNotFit          weights are not of the shapes that compiled code was made for
├── VerificationFailed       the package does not compute what eager computes
│   ├── PromiseBroken          a node of the program gives other sizes or strides than tracing promised
│   ├── PackageUnsteady        two runs of the package on the same inputs differ
│   └── PackageCrashed         the process that ran the package died, hung or gave no answer
├── OutOfMemory              the GPU's memory, or the machine's, ran out
├── IndexFailed              FAISS could not build an index over the item vectors
├── InvalidArtifact          a published artifact is incomplete or damaged
│   └── SignatureRefused       it is not signed, or not by the key that is to verify it
├── AlreadyPublished         the destination key exists; keys are never overwritten
├── SourceNotFound           a URI names nothing
├── StorageError             an object store refused or could not be reached (may be retryable)
└── AttemptFailed            the attempt's processes ended without an outcome
    ├── AttemptTimedOut      they took longer than they may
    ├── StageTimedOut        a stage of one tower took longer than it may
    ├── LeaseUnproven        nobody could say whether the job was still the attempt's
    ├── HostMissing          not all hosts of the export came, or one was lost
    └── TowerDied            the process of one tower ended without a result
"""

import re

from exporter.redaction import name_first, redact_and_escape, shorten, shorten_inside

LONGEST_MESSAGE = 3000  # characters; a file of a stranger may have a name of megabytes in it
LONGEST_HINT = 1000
LONGEST_PLACE = 1000  # of `where`
LONGEST_REPORT = 8000
_FEW = 5  # names in a message whose report has all of them
_SEARCHED = 1 << 20  # characters that are searched for secrets; nothing behind them is shown


def fit_to_show(text: str, most: int) -> str:
    """Return a text of an error as people may see it: short, without secrets and deceptive characters."""
    return shorten_inside(redact_and_escape(shorten(text, _SEARCHED)), most)


class ExportError(Exception):
    """Base of the tree: a stable code, what happened, and what to do about it."""

    code: str = "export_error"
    retryable: bool = False
    advice: str = ""  # the default of `hint`
    report: str = ""  # details that are too long for a message: torch's output, complete lists of names

    def __init__(self, message: str, *, hint: str = "", where: str = "") -> None:
        """Say what happened (`message`), what to do (`hint`) and at which field, line or file (`where`)."""
        self.message = fit_to_show(message, LONGEST_MESSAGE)
        self.hint = fit_to_show(hint or self.advice, LONGEST_HINT)
        self.where = fit_to_show(where, LONGEST_PLACE)
        super().__init__(self.message)


class InvalidSpec(ExportError):
    """The request contradicts itself or what the model offers."""

    code = "invalid_spec"
    advice = "correct the field that `where` names"


class WrongArchitecture(InvalidSpec):
    """The machine is not of the requested target; packages are compiled only where they can be run."""

    code = "wrong_architecture"
    advice = "send the job to a worker of that target"


class UriNotAllowed(InvalidSpec):
    """A URI lies where the caller, or the service, may not read or write."""

    code = "uri_not_allowed"
    advice = "name a place that the operator has allowed; see docs/access.md"


class InvalidPipelineConfig(ExportError):
    """The pipeline config does not parse or contradicts itself."""

    code = "invalid_pipeline_config"
    advice = "correct the line or the feature that `where` names"

    def place(self, position: str, *, instead_of: str) -> None:
        """Add the position in the config's text, as "config:12", to `message` and `where`.

        `instead_of`, the name of the text, is replaced where the message or `where` begins with it.
        """
        named = instead_of and re.compile(re.escape(instead_of) + r"(?=[: ])")
        message, where = (
            position + text.removeprefix(instead_of) if named and named.match(text) else f"{position}: {text}"
            for text in (self.message, self.where)
        )
        self.message, self.where = fit_to_show(message, LONGEST_MESSAGE), fit_to_show(where, LONGEST_PLACE)
        self.args = (self.message,)


class UnsupportedConfig(InvalidPipelineConfig):
    """The pipeline config parses, and asks for something Slipway does not build."""

    code = "unsupported_config"
    advice = "leave that feature or option out, or export without Slipway"


class FamilyError(ExportError):
    """A model family that is not one of TorchEasyRec's cannot be exported."""

    code = "family_error"
    advice = "see docs/families.md"


class FamilyNotListed(FamilyError):
    """The operator has not listed the family."""

    code = "family_not_listed"
    advice = "ask the operator to add it to SLIPWAY_FAMILIES of the service and its workers"


class FamilyUnusable(FamilyError):
    """No installed package, or file, offers the family, or what is offered is no family."""

    code = "family_unusable"
    advice = "install the family's package where exports run; see docs/families.md"


class FamilyFailed(FamilyError):
    """The family's own code raised."""

    code = "family_failed"
    advice = "correct the family's package; the failure's report has the traceback"


class InvalidDeclaration(FamilyError):
    """The family's declaration contradicts itself or its module."""

    code = "invalid_declaration"
    advice = "correct the declaration, or the module; see docs/families.md"


class InvalidRows(ExportError):
    """A row, column or file of the input rows cannot be used."""

    code = "invalid_rows"
    advice = "correct the rows; the message names file, column and row"


class CheckpointError(ExportError):
    """The checkpoint cannot be used."""

    code = "checkpoint_error"
    advice = "use the checkpoint as training wrote it"


class CheckpointUnreadable(CheckpointError):
    """Not a checkpoint, damaged, or asks to run code while being opened."""

    code = "checkpoint_unreadable"
    advice = (
        "point to a DCP folder, a .safetensors file or a .pt file with a state dict, as training wrote it"
    )


class CheckpointMismatch(CheckpointError):
    """Checkpoint and model disagree on names, shapes or dtypes."""

    code = "checkpoint_mismatch"
    advice = "use the pipeline config this checkpoint was trained with"

    def __init__(
        self,
        *,
        missing: list[str],
        unexpected: list[str],
        mismatched: list[str],
        where: str = "",
    ) -> None:
        """Take the names of the tensors; `mismatched` entries read "name: checkpoint (…), model (…)"."""
        lists = {"missing": missing, "unexpected": unexpected, "mismatched": mismatched}
        parts = [
            f"{len(names)} {kind}: {name_first(names, most=_FEW)}" for kind, names in lists.items() if names
        ]
        super().__init__("checkpoint and model disagree; " + "; ".join(parts), where=where)
        self.missing, self.unexpected, self.mismatched = missing, unexpected, mismatched
        self.report = "\n".join(f"{kind} {name}" for kind, names in lists.items() for name in names)


class DimPlanViolated(ExportError):
    """The traced program's sizes are not those of the plan."""

    code = "dim_plan_violated"
    advice = "report it with the pipeline config: it is a fault in Slipway or in the plan"


class DimsConflict(DimPlanViolated):
    """The model requires sizes to be equal that the plan keeps apart."""

    code = "dims_conflict"
    advice = "write the features in one sequence_feature, or declare that they have the same length"


class DimSpecialised(DimPlanViolated):
    """Tracing narrowed or fixed a size that the plan lets vary."""

    code = "dim_specialised"
    advice = "change the model's option that fixes the size, or report it with the pipeline config"


class TorchUnsupported(ExportError):
    """The installed torch is not of the release that is asked for, or lacks parts that Slipway needs."""

    code = "torch_unsupported"
    advice = "install a release of torch that Slipway supports; see docs/torch-versions.md"


class PassRefused(ExportError):
    """An edit of a traced program does not fit it."""

    code = "pass_refused"
    advice = "correct the pass that `where` names"


class ShapeRuleMissing(ExportError):
    """A custom operator does not say what sizes it returns."""

    code = "shape_rule_missing"
    advice = "register a shape rule with torch.library.register_fake, or set allow_inferred_ops"


class TraceFailed(ExportError):
    """torch.export could not capture the tower."""

    code = "trace_failed"
    advice = "report it with the pipeline config"


class CompileFailed(ExportError):
    """AOTInductor could not build the package."""

    code = "compile_failed"
    advice = "see the attempt's log; on a new machine check g++"


class WeightsDoNotFit(ExportError):
    """Weights are not of the names, shapes, dtypes or strides that compiled code was made for."""

    code = "weights_do_not_fit"
    advice = "report it with the pipeline config: code that was compiled for another model was reused"


class VerificationFailed(ExportError):
    """The package does not compute what eager computes."""

    code = "verification_failed"
    advice = "nothing of the tower was published; report the case that `where` names"


class PromiseBroken(VerificationFailed):
    """A node of the program gives other sizes, strides or dtypes than tracing promised."""

    code = "promise_broken"
    advice = "correct the shape rule of the operator that the message names, or the model's line"
    case = ""  # the verification case in which it appeared; `where` is the line of code


class PackageUnsteady(VerificationFailed):
    """Two runs of the package on the same inputs differ."""

    code = "package_unsteady"
    advice = "nothing of the tower was published; look for memory that is read before it is written"


class PackageCrashed(VerificationFailed):
    """The process that ran the package died, hung or gave no answer."""

    code = "package_crashed"
    advice = "check that the artifact was built for this machine; report it with the log"


class OutOfMemory(ExportError):
    """The GPU's memory, or the machine's, ran out."""

    code = "out_of_memory"
    advice = "use a larger GPU or machine, fewer `ranks`, a smaller max_batch_size or tables of fewer bits"
    retryable = True  # another program may have held the memory


class IndexFailed(ExportError):
    """FAISS could not build an index over the item vectors."""

    code = "index_failed"
    advice = "SIGKILL mostly means too little memory: use a larger worker, or an index of kind ivf_pq"


class InvalidArtifact(ExportError):
    """A published artifact is incomplete or damaged."""

    code = "invalid_artifact"
    advice = "export again; never repair an artifact by hand"


class SignatureRefused(InvalidArtifact):
    """The artifact is not signed, or not by the key that is to verify it."""

    code = "signature_refused"
    advice = "do not load it; export again, or ask its publisher for the right key"


class AlreadyPublished(ExportError):
    """The destination key exists; keys are never overwritten."""

    code = "already_published"
    advice = "choose another output"


class SourceNotFound(ExportError):
    """A URI names nothing."""

    code = "source_not_found"
    advice = "correct the URI"


class StorageError(ExportError):
    """An object store refused or could not be reached."""

    code = "storage_error"
    advice = "check credentials and network"
    retryable = True

    def __init__(self, message: str, *, hint: str = "", where: str = "", retryable: bool = True) -> None:
        """Take an error's arguments; `retryable=False` if another try cannot help, as with denied access."""
        super().__init__(message, hint=hint, where=where)
        self.retryable = retryable


class AttemptFailed(ExportError):
    """The attempt's processes ended without an outcome."""

    code = "attempt_failed"
    advice = "Slipway tries again by itself; if it gives up, see the worker's log"
    retryable = True


class AttemptTimedOut(AttemptFailed):
    """The attempt took longer than it may; another one would too."""

    code = "attempt_timed_out"
    advice = "raise the worker's limit, or ask for fewer towers"
    retryable = False


class StageTimedOut(AttemptFailed):
    """A stage took longer than it may and was stopped; the report has the stack it hung in."""

    code = "stage_timed_out"
    advice = "the report names where it hung; raise SLIPWAY_STAGE_TIME_LIMIT if it was only slow"
    retryable = False


class LeaseUnproven(AttemptFailed):
    """Nobody could say whether the job was still the attempt's, so it published nothing."""

    code = "lease_unproven"
    advice = "the worker lost the job store for minutes; Slipway tries again by itself"


class HostMissing(AttemptFailed):
    """Not all hosts of the export reached the rendezvous, or one of them was lost."""

    code = "host_missing"
    advice = "run the same command on every host; all must reach --rdzv, and each other at all ports"
    retryable = False


class TowerDied(AttemptFailed):
    """The process of one tower ended without a result."""

    code = "tower_died"
    advice = "SIGKILL mostly means too little memory; otherwise the attempt's log ends with the cause"
