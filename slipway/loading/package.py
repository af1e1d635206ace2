"""One loaded package: its code, and its weights as pages of a file."""

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from slipway.loading.errors import ArtifactInvalid
from slipway.loading.layout.source import Source
from slipway.loading.mapped_file import MappedFile
from slipway.loading.native_calls import NativePackage, find_native_package

_MODEL = "model"  # the name of a package's only program
_SINGLE_THREADED = False


class Package:
    """A package of which `takes` and `gives` are the names of its inputs and outputs, in order."""

    def __init__(
        self, source: Source, *, calls_at_once: int, device: torch.device, code: Source | None = None
    ) -> None:
        """Load code and map weights. `code` is a source of equal code that is already loaded, or None.

        Raises:
            ArtifactInvalid: torch does not load the code, or it takes other weights.
        """
        self.source = source
        self.code = code or source
        self.mapped = MappedFile(source.weights.path, source.weights.size) if source.weights else None
        index = -1 if device.index is None else device.index
        try:
            self._loader = torch._C._aoti.AOTIModelPackageLoader(
                str(self.code.folder), _MODEL, _SINGLE_THREADED, calls_at_once, index
            )
            self._use_weights(device)
        except RuntimeError as error:
            raise ArtifactInvalid(
                f"torch does not load {source.library.name}: {error}", where=str(source.library)
            ) from error
        taken, given = self._loader.get_call_spec()
        (names,) = pytree.treespec_loads(taken).children()[0].children()
        self.takes: tuple[str, ...] = tuple(names.context)
        self.gives: tuple[str, ...] = tuple(pytree.treespec_loads(given).context)
        self.native: NativePackage | None = None  # None: it is called by torch's binding
        if device.type == "cpu":
            self.native = find_native_package(self._loader, self.code.library)

    def _use_weights(self, device: torch.device) -> None:
        if self.mapped is None or self.source.weights is None:
            return
        tensors = {placed.name: self.mapped.tensor(placed) for placed in self.source.weights.tensors}
        if device.type != "cpu":
            tensors = {name: tensor.to(device) for name, tensor in tensors.items()}
        # No full update is required, as folded constants are no weights: loading computes them.
        self._loader.load_constants(tensors, use_inactive=False, check_full_update=False, user_managed=True)
        self._tensors = tensors

    def call(self, values: list[Tensor]) -> dict[str, Tensor]:
        """Call by torch's binding, which holds Python's lock, with the values of `takes`.

        Raises:
            RuntimeError: the package refuses the values, or fails.
        """
        return dict(zip(self.gives, self._loader.boxed_run(values), strict=True))

    def __del__(self) -> None:
        """Unmap the weights once the code that reads them is gone."""
        mapped: MappedFile | None = self.__dict__.get("mapped")
        self.__dict__.clear()
        if mapped is not None:
            mapped.close()
