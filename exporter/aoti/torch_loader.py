"""torch's private loader of packages; not in `torch_private`, whose imports include the compiler.

Importing the compiler takes longer than importing torch itself, and every verification would pay for it.
"""

import os
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import torch
from torch.utils import _pytree as pytree

from exporter.aoti.native_call import call_natively, can_call_natively

_MODEL = "model"  # the name of a package's only program
_STDERR = 2


class Package:
    """A loaded package, called with a dict of inputs as in the trace; returns a dict of outputs."""

    def __init__(
        self, path: Path, device_index: int = -1, *, runners: int = 1, single_threaded: bool = False
    ) -> None:
        """Load native code from a package or a folder, whose digest must have been checked before.

        As many threads as there are `runners` can call it at a time; others wait. A `single_threaded` package
        does not track calls and may be called from one thread only: a CUDA graph can capture its calls, which
        it cannot for the events by which other threads would wait.
        """
        self.loader = torch._C._aoti.AOTIModelPackageLoader(
            str(path), _MODEL, single_threaded, runners, device_index
        )
        inputs, outputs = self.loader.get_call_spec()
        self._outputs = pytree.treespec_loads(outputs)
        self.taken = _names_of(pytree.treespec_loads(inputs))

    def __call__(self, inputs: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        with _reasons_in_errors():
            found = self.loader.boxed_run(list(inputs.values()))
        outputs: dict[str, torch.Tensor] = pytree.tree_unflatten(found, self._outputs)
        return outputs

    def call_unlocked(self, inputs: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Call without Python's lock, where that is possible; the inputs must be known to be taken."""
        if not can_call_natively():
            return self(inputs)
        outputs: dict[str, torch.Tensor] = pytree.tree_unflatten(
            call_natively(self.loader, list(inputs.values())), self._outputs
        )
        return outputs


@cache
def _hands_on_reasons() -> bool:
    """Return whether errors of packages say why; older releases of torch write that to stderr alone."""
    runtime = Path(torch.__path__[0], "include", "torch", "csrc", "inductor", "aoti_runtime")
    return "AOTInductorGetLastError" in (runtime / "interface.h").read_text()


@contextmanager
def _reasons_in_errors() -> Iterator[None]:
    """Let a package's error say why, if torch does not: put what went to stderr before its message."""
    if _hands_on_reasons():
        yield
        return
    sys.stderr.flush()
    own = os.dup(_STDERR)
    with tempfile.TemporaryFile() as said:
        os.dup2(said.fileno(), _STDERR)
        try:
            yield
        except RuntimeError as error:
            said.seek(0)
            raise RuntimeError(f"{said.read().decode(errors='replace')}{error}") from error
        finally:
            os.dup2(own, _STDERR)
            os.close(own)


def _names_of(inputs: pytree.TreeSpec) -> tuple[str, ...]:
    """Return the names of the inputs, in order: the keys of the dict that is the only argument."""
    arguments, _ = inputs.children()
    (names,) = arguments.children()
    return tuple(names.context)


class UnpackedPackage(Package):
    """A package unpacked to a folder, with weights given as tensors, which are used without a copy."""

    def __init__(self, folder: Path, weights: Mapping[str, torch.Tensor], *, runners: int = 1) -> None:
        """Load native code as `Package` does; `weights` are not checked, and must outlive this object."""
        super().__init__(folder, runners=runners)
        # No full update is required, as folded constants are no weights: loading computes them.
        self.loader.load_constants(
            dict(weights), use_inactive=False, check_full_update=False, user_managed=True
        )
        self._weights = weights
