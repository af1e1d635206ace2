"""Every use of torch's private API, in one place (torch 2.13)."""

import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import torch
import torch._inductor
import torch.fx.experimental._config as symbolic_shapes_config
from torch._inductor import cpu_vec_isa
from torch.export import ExportedProgram

# What inductor is told for every package; values are inductor's own configuration keys.
# - Weights stay outside the .so, as a plain blob in the order of the package's constants table, so
#   that compiled code does not depend on them and they can be rewritten without compiling.
# - Folding of constants happens when the package is loaded: folded at compile time, the weights'
#   values would be baked into the code.
_PACKAGE_CONFIG: Mapping[str, bool | str] = {
    "aot_inductor.package_constants_in_so": False,
    "aot_inductor.package_constants_on_disk_format": "binary_blob",
    "aot_inductor.use_runtime_constant_folding": True,
}


class Package:
    """A loaded package: call it with the dict of inputs it was traced with."""

    def __init__(self, path: Path, device_index: int = -1) -> None:
        """Load native code: only from a package whose digest is known."""
        self._model = torch._inductor.aoti_load_package(str(path), device_index=device_index)

    def __call__(self, inputs: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        outputs: dict[str, torch.Tensor] = self._model(dict(inputs))
        return outputs


@contextmanager
def sizes_zero_and_one_stay_dynamic() -> Iterator[None]:
    """Trace and compile without assuming that dynamic sizes are at least 2.

    Otherwise torch.export and AOTInductor treat 0 and 1 as special, and the package's input checks
    refuse an empty history or a single row whatever lower bound the `Dim` states.
    """
    with symbolic_shapes_config.patch(  # type: ignore[attr-defined] # added when the module is imported
        backed_size_oblivious=True
    ):
        yield


def compile_and_package(program: ExportedProgram, path: Path) -> None:
    """Compile a program with AOTInductor into one `.pt2` at `path`."""
    with warnings.catch_warnings(), sizes_zero_and_one_stay_dynamic():
        warnings.simplefilter("ignore")  # inductor's remarks on its own internals; failures raise
        torch._inductor.aoti_compile_and_package(
            program, package_path=str(path), inductor_configs=dict(_PACKAGE_CONFIG)
        )


def cpu_instruction_sets() -> tuple[str, ...]:
    """The vector instruction sets that inductor compiles for here: ("avx512", "avx512_vnni"), ..."""
    isa = cpu_vec_isa.pick_vec_isa()
    return tuple(str(isa).lower().split()) if isa else ()
