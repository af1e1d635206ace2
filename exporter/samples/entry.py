"""Entry of the sample requests that are published with their answers, by which a server proves itself."""

from pydantic import Field

from exporter.frozen import Frozen


class FileRef(Frozen):
    """A file of the artifact: its path below the artifact's root, size and digest."""

    path: str
    size: int  # bytes
    sha256: str


class SampleCase(Frozen):
    """One sample request: a case of the gate, in which the packages gave eager's answer."""

    name: str  # of the verification case
    sizes: dict[str, int]  # dynamic dim -> size
    allowed: dict[str, float] = Field(
        description="Output -> largest absolute difference of its numbers from the answer's, as the gate "
        "allowed it; 0 for integers, which must be equal. A number that is not finite is never allowed."
    )


class SamplesEntry(Frozen):
    """A file of real rows as requests, and eager's answers to them.

    It is a safetensors file with the tensors `inputs/<case>/<input>` and `outputs/<case>/<output>`.
    """

    file: FileRef
    cases: tuple[SampleCase, ...]


def input_key(case: str, name: str) -> str:
    """Return the name of an input in the file of samples."""
    return f"inputs/{case}/{name}"


def output_key(case: str, name: str) -> str:
    """Return the name of an answer's output in the file of samples."""
    return f"outputs/{case}/{name}"
