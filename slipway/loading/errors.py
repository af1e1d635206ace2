"""Everything for which a tower is not loaded, not called or not exchanged, as a tree of stable codes.

LoaderError
├── ArtifactInvalid      no manifest, or one that contradicts itself or that this version cannot read
│   ├── TowerMissing       the artifact has no tower of this name
│   └── ArtifactDamaged    a file is missing, cut short or not the one that was published
├── SignatureRefused     the artifact is not signed, or not by the given key
├── MachineUnfit         this machine lacks what the code was compiled for
├── VersionsDiffer       torch or fbgemm is another version than the code was compiled with
├── OperatorsMissing     a library of operators cannot be imported
├── InputRefused         a call's inputs are not those that the manifest describes
├── CallFailed           a package failed for another reason than its inputs
├── SwapRefused          the newer artifact takes or returns other tensors
├── ProofFailed          an answer to a sample request is not the published one
└── PrepareFailed        the prepared folder could not be written
"""


class LoaderError(Exception):
    """Base of the tree: a stable code, what happened, what to do, and where."""

    code = "loader_error"
    advice = ""  # the default of `hint`

    def __init__(self, message: str, *, hint: str = "", where: str = "") -> None:
        """Say what happened (`message`), what to do (`hint`) and at which file, field or input (`where`)."""
        self.message, self.hint, self.where = message, hint or self.advice, where
        super().__init__(message)


class ArtifactInvalid(LoaderError):
    """The artifact has no manifest, or its description contradicts itself."""

    code = "artifact_invalid"
    advice = "give the folder <output>/<job id> of a published artifact, or one that `slipway prepare` wrote"


class TowerMissing(ArtifactInvalid):
    """The artifact has no tower of this name."""

    code = "tower_missing"
    advice = "name one of the towers that the message lists"


class ArtifactDamaged(ArtifactInvalid):
    """A file of the artifact is missing, cut short, or differs from the one that was published."""

    code = "artifact_damaged"
    advice = "copy or prepare the artifact again; never repair one by hand"


class SignatureRefused(LoaderError):
    """The artifact is not signed, or not by the key that is to verify it."""

    code = "signature_refused"
    advice = "find out who wrote the artifact before you load any of it"


class MachineUnfit(LoaderError):
    """This machine lacks what the code was compiled for."""

    code = "machine_unfit"
    advice = "load it on such a machine, or export on a worker like this one"


class VersionsDiffer(LoaderError):
    """Another version of torch or fbgemm is installed than the code was compiled with."""

    code = "versions_differ"
    advice = "install the version that the message names, or export with the installed one"


class OperatorsMissing(LoaderError):
    """A Python module that registers operators of the package cannot be imported."""

    code = "operators_missing"
    advice = "install the package that has the module"


class InputRefused(LoaderError):
    """A call's inputs are not those that the manifest describes; `where` names the input."""

    code = "input_refused"
    advice = "correct the input; the manifest lists the inputs of every tower"


class CallFailed(LoaderError):
    """A package failed while it computed, for another reason than its inputs."""

    code = "call_failed"
    advice = "the message quotes the package; look for memory that ran out"


class SwapRefused(LoaderError):
    """The newer artifact takes or returns other tensors than the loaded one, which goes on answering."""

    code = "swap_refused"
    advice = "load the newer artifact as a tower of its own"


class ProofFailed(LoaderError):
    """An answer to a sample request is not the published one, or none was published."""

    code = "proof_failed"
    advice = "do not serve it here: export on such a machine, or with sample_rows of at least 1"


class PrepareFailed(LoaderError):
    """The prepared folder could not be written; nothing is left of it."""

    code = "prepare_failed"
    advice = "make room on the disk, or name another folder"
