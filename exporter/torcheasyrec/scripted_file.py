"""The scripted half as a file: written by TorchScript, and called as TorchEasyRec's loader calls it.

Imports torch alone: the process that tries out packages loads it too.
"""

import hashlib
import warnings
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import Tensor
from torch.fx import GraphModule

from exporter.aoti.assemble import WrittenFile
from exporter.aoti.load import PackageContents, check_archive
from exporter.errors import InvalidArtifact

SCRIPTED_PATH = "scripted_sparse_model.pt"  # below a tower's folder, where TorchEasyRec's loader looks for it


def write_scripted(graph: GraphModule, path: Path) -> WrittenFile:
    """Compile a sparse half with TorchScript and write it, with the rows of its tables."""
    with _without_deprecations():
        scripted = torch.jit.script(graph.eval())
        torch.jit.save(scripted, str(path))
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return WrittenFile(path=path, size=path.stat().st_size, sha256=digest)


def load_scripted(path: Path, device: torch.device) -> torch.jit.ScriptModule:
    """Load a scripted half, whose digest must have been checked before, as TorchEasyRec's loader does."""
    with _without_deprecations():
        scripted: torch.jit.ScriptModule = torch.jit.load(str(path), map_location=device)
    return scripted


def read_scripted(path: Path) -> PackageContents:
    """Read what is in a scripted half, as `exporter.aoti.load.read_contents` does with a package.

    Raises:
        InvalidArtifact: the file is no such half.
    """
    check_archive(path)
    with zipfile.ZipFile(path) as archive:
        names = sorted(name for name in archive.namelist() if name.endswith(".py"))
        digest = hashlib.sha256(b"".join(map(archive.read, names))).hexdigest()
    try:
        weights = load_scripted(path, torch.device("cpu")).state_dict()
    except RuntimeError as error:
        raise InvalidArtifact(f"{path} is no scripted half: {error}", where=str(path)) from error
    return PackageContents(code={"torchscript": digest}, weights=weights)


class ScriptedHalf:
    """A loaded sparse half, called with a dict of inputs, of which it takes those in `taken` by name."""

    def __init__(self, path: Path, device: torch.device, taken: tuple[str, ...]) -> None:
        self._scripted, self._device = load_scripted(path, device), device
        self.taken = taken

    def __call__(self, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return the tensors between the halves, in the order in which a dense half takes them.

        Raises:
            RuntimeError: it refuses the inputs; the first line is the reason.
        """
        try:
            between: dict[str, Tensor] = self._scripted(dict(inputs), self._device)[0]
        except (RuntimeError, torch.jit.Error) as error:  # what was raised comes after a traceback
            reason = str(error).strip().splitlines()[-1].removeprefix("builtins.RuntimeError: ")
            raise RuntimeError(f"{reason}\n{error}") from error
        return between

    call_unlocked = __call__


@contextmanager
def _without_deprecations() -> Iterator[None]:
    """Hide that torch advises against TorchScript: TorchEasyRec's loader reads nothing else."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=DeprecationWarning, message=".*torch.jit")
        warnings.filterwarnings("ignore", category=UserWarning, message="The TorchScript type system")
        yield
