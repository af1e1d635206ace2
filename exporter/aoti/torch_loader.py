"""torch's private loader of packages, without the compiler: what runs packages need not import that one.

The import of the compiler takes longer than that of torch itself, and every verification would pay for it.
"""

from collections.abc import Mapping
from pathlib import Path

import torch
from torch.utils import _pytree as pytree

_MODEL = "model"  # the name of a package's only program


class Package:
    """A loaded package: call it with the dict of inputs it was traced with."""

    def __init__(
        self, path: Path, device_index: int = -1, *, runners: int = 1, single_threaded: bool = False
    ) -> None:
        """Load native code, from a package or from a folder: only such whose digest is known.

        It may be called from as many threads at a time as there are `runners`; others wait. What is
        `single_threaded` keeps no account of calls, and is called from one thread only: a CUDA graph can
        capture it, but not the events by which others wait.
        """
        self.loader = torch._C._aoti.AOTIModelPackageLoader(
            str(path), _MODEL, single_threaded, runners, device_index
        )
        _, outputs = self.loader.get_call_spec()
        self._outputs = pytree.treespec_loads(outputs)

    def __call__(self, inputs: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        found: dict[str, torch.Tensor] = pytree.tree_unflatten(
            self.loader.boxed_run(list(inputs.values())), self._outputs
        )
        return found


class UnpackedPackage(Package):
    """The code of a package in a folder, and its weights as tensors, which are used where they lie."""

    def __init__(self, folder: Path, weights: Mapping[str, torch.Tensor]) -> None:
        """Load native code, as above; `weights` are not checked here, and must outlive this object."""
        super().__init__(folder)
        # Not all constants are weights: what is folded when loaded is computed from them.
        self.loader.load_constants(
            dict(weights), use_inactive=False, check_full_update=False, user_managed=True
        )
        self._weights = weights
