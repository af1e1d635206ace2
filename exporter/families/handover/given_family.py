"""The family of a module that `slipway.export` was given: declared by the config, built from its files."""

from collections.abc import Sequence
from pathlib import Path
from typing import cast

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from exporter.declaration import TowerDeclaration
from exporter.families.family import Family
from exporter.families.handover.errors import ModuleUnusable
from exporter.families.handover.given_tower import GivenTower
from exporter.families.handover.module_file import read_module
from exporter.families.own_code import MODULE_FILE, ORIGIN_NAME, GivenOrigin
from exporter.families.own_module import GUARD
from exporter.families.yaml_text import declaration_from_yaml
from exporter.spec import TowerName

EXAMPLE_FILE = ".example.safetensors"  # ending of a tower's example inputs and the module's answers to them
INPUT, OUTPUT = "input:", "output:"  # in front of their names there
_TOLERANCE = 1e-3  # of an output's scale: another device may have computed it, and products in TF32


class GivenFamily(Family):
    """One module per tower; its config is the declaration that was proposed from the example."""

    def __init__(self, folder: Path) -> None:
        """Read the folder that `slipway.export` wrote."""
        self._folder = folder
        self._origin = GivenOrigin.model_validate_json((folder / ORIGIN_NAME).read_bytes())

    def towers(self, config: str) -> Sequence[TowerDeclaration]:
        return declaration_from_yaml(config)

    def build(self, config: str, tower: TowerName) -> nn.Module:
        return read_module(self._folder / f"{tower}{MODULE_FILE}", self._origin)

    def trained_part(self, module: nn.Module) -> nn.Module:
        return cast(GivenTower, module).model

    def require_faithful(self, module: nn.Module, tower: TowerName) -> None:
        """Compare the module's answers to the example with those that it gave where it was handed over.

        Raises:
            ModuleUnusable: they differ.
        """
        example = load_file(self._folder / f"{tower}{EXAMPLE_FILE}")
        inputs = {name.removeprefix(INPUT): each for name, each in example.items() if name.startswith(INPUT)}
        outputs = module(inputs)
        for name, expected in example.items():
            if not name.startswith(OUTPUT):
                continue
            if not _is_close(outputs[name.removeprefix(OUTPUT)], expected):
                raise ModuleUnusable(
                    f"the {tower} tower, built again and filled from the checkpoint, gives another "
                    f"{name.removeprefix(OUTPUT)} for the example than where it was handed over",
                    hint="give the checkpoint of this module, and let its code depend on nothing that only "
                    f"the calling program sets; {GUARD}",
                    where=str(tower),
                )


def _is_close(output: Tensor, expected: Tensor) -> bool:
    """Tell whether finite values agree within the tolerance, and all others are the same."""
    output, expected = output.double(), expected.double()
    finite = expected[expected.isfinite()]
    scale = float(finite.abs().max()) if finite.numel() else 0.0
    return torch.allclose(output, expected, rtol=0, atol=_TOLERANCE * scale, equal_nan=True)
