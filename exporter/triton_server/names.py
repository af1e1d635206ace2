"""Names in a Triton model repository: of models, their files, and the tensors of their packages."""

import re
from collections.abc import Sequence

from exporter.spec import Mode, TowerName

REPOSITORY = "triton"  # the folder below a tower's
PACKAGE_NAME = "model.pt2"
CONFIG_NAME = "config.pbtxt"
VERSION = "1"
WARM_UP = "warmup"  # Triton looks there for the data of warm-up requests

# Triton's backend splits the names of tensors at brackets, and takes neither blanks nor quotes in a key.
_KEY = re.compile(r"[!-~]+")
_NO_KEY = frozenset('"[]\\')


def model_name(tower: TowerName, prefix: str | None) -> str:
    """Return the name of the model that clients call: the tower's, after the prefix if there is one."""
    return f"{prefix}_{tower}" if prefix else str(tower)


def package_models(model: str, mode: Mode) -> tuple[str, ...]:
    """Return the names of the models of a tower's packages, in calling order; clients call `model`."""
    return (model,) if mode is Mode.UNIFIED else (f"{model}_sparse", f"{model}_dense")


def package_path(model: str) -> str:
    """Return the path of a model's package, below the tower's folder."""
    return f"{REPOSITORY}/{model}/{VERSION}/{PACKAGE_NAME}"


def input_names(names: Sequence[str]) -> dict[str, str]:
    """Return the name in Triton of each input of a package, which takes one dict of tensors in this order."""
    return _names(names, "ARGS[0]", "INPUT")


def output_names(names: Sequence[str]) -> dict[str, str]:
    """Return the name in Triton of each output of a package, which returns one dict in this order."""
    return _names(names, "RESULT", "OUTPUT")


def _names(names: Sequence[str], dictionary: str, ordinal: str) -> dict[str, str]:
    """Return names by keys of a dict, or by places where a key is none that Triton's backend reads."""
    if all(_is_key(name) for name in names):
        return {name: f"{dictionary}[{name}]" for name in names}
    return {name: f"{ordinal}__{place}" for place, name in enumerate(names)}


def _is_key(name: str) -> bool:
    return _KEY.fullmatch(name) is not None and not _NO_KEY & set(name)
