"""torch's private loader of packages; not in `torch_private`, whose imports include the compiler.

Importing the compiler takes longer than importing torch itself, and every verification would pay for it.
"""

from collections.abc import Mapping
from pathlib import Path

import torch
from torch.utils import _pytree as pytree

from exporter.aoti.native_call import call_natively, can_call_natively

_MODEL = "model"  # the name of a package's only program


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
        outputs: dict[str, torch.Tensor] = pytree.tree_unflatten(
            self.loader.boxed_run(list(inputs.values())), self._outputs
        )
        return outputs

    def call_unlocked(self, inputs: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Call without Python's lock, where that is possible; the inputs must be known to be taken."""
        if not can_call_natively():
            return self(inputs)
        outputs: dict[str, torch.Tensor] = pytree.tree_unflatten(
            call_natively(self.loader, list(inputs.values())), self._outputs
        )
        return outputs


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
