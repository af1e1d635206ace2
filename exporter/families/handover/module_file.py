"""A module in a file, without its weights: pickled by its own process, for another of the same user.

Weights stay in the checkpoint, and are placeholders here. Classes of the program's main file are found by
running that file under another name, as multiprocessing does.
"""

import pickle
import pickletools
import sys
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import IO, Any

import torch
from torch import Tensor, nn

from exporter.families.handover.errors import ModuleUnusable
from exporter.families.own_code import GivenOrigin
from exporter.families.own_module import GUARD, load_file, look_in, running

_MAIN = "__main__"


def find_origin(name: str) -> GivenOrigin:
    """Return where the classes of this program come from."""
    main = sys.modules[_MAIN]
    spec, file = getattr(main, "__spec__", None), getattr(main, "__file__", None)
    file = file if file and Path(file).is_file() else None  # a program on standard input has only a name
    return GivenOrigin(
        name=name,
        main_module=spec.name if spec else None,
        main_file=Path(file).absolute() if file and not spec else None,
        folders=tuple(Path(folder).absolute() for folder in sys.path),
    )


def write_module(module: nn.Module, trained: nn.Module, path: Path, origin: GivenOrigin) -> None:
    """Write a module; the tensors of the state dict of `trained`, a part of it, are left out.

    Raises:
        ModuleUnusable: a part of it cannot be pickled, or a class of it is in no file.
    """
    try:
        with path.open("wb") as file:
            _Pickler(file, trained).dump(module)
    except OSError:
        raise
    except Exception as error:  # parts of a module may raise any error
        raise ModuleUnusable(
            f"the module cannot be handed to the process that exports it: {error}",
            hint="define its classes and functions at the top of a file, and give it no open files, locks, "
            "lambdas or hooks; or write a family: docs/own-module.md",
        ) from error
    if (origin.main_module, origin.main_file) == (None, None) and _names_main(path.read_bytes()):
        raise ModuleUnusable(
            "a class or function of the module is defined in an interactive session, where no other process "
            "can find it",
            hint="write it into a file, as my_model.py, and import it from there",
        )


def read_module(path: Path, origin: GivenOrigin) -> nn.Module:
    """Return the module of a file, its weights on the meta device."""
    look_in(origin.folders)
    with path.open("rb") as file:
        module: object = _Unpickler(file, origin).load()
    assert isinstance(module, nn.Module), "write_module wrote it"
    return module


class _Pickler(pickle.Pickler):
    """Leaves the weights out, and moves all other tensors to the CPU."""

    def __init__(self, file: IO[bytes], trained: nn.Module) -> None:
        super().__init__(file, protocol=pickle.HIGHEST_PROTOCOL)
        self._weights = trained.state_dict(keep_vars=True)  # kept, so that the ids stay those of its tensors
        self._names = {id(tensor): name for name, tensor in self._weights.items()}

    def persistent_id(self, value: object) -> tuple[str, torch.dtype, tuple[int, ...], bool, bool] | None:
        name = self._names.get(id(value))
        if name is None or not isinstance(value, Tensor):
            return None
        is_parameter = isinstance(value, nn.Parameter)
        return name, value.dtype, tuple(value.shape), is_parameter, value.requires_grad

    def reducer_override(self, value: object) -> Any:
        if isinstance(value, Tensor) and value.device.type not in ("cpu", "meta"):
            return value.detach().cpu().__reduce_ex__(pickle.HIGHEST_PROTOCOL)
        return NotImplemented


class _Unpickler(pickle.Unpickler):
    """Puts tensors on the meta device in the place of the weights."""

    def __init__(self, file: IO[bytes], origin: GivenOrigin) -> None:
        super().__init__(file)
        self._origin = origin
        self._weights: dict[str, Tensor] = {}

    def find_class(self, module: str, name: str) -> object:
        if module != _MAIN:
            return super().find_class(module, name)
        found: object = _load_main(self._origin)
        for part in name.split("."):
            if not hasattr(found, part):
                raise ModuleUnusable(
                    f"{self._origin.main_file or self._origin.main_module} has no {name} when it is imported",
                    hint=f"define it at the top of the file; {GUARD}",
                )
            found = getattr(found, part)
        return found

    def persistent_load(self, pid: tuple[str, torch.dtype, tuple[int, ...], bool, bool]) -> Tensor:
        name, dtype, shape, is_parameter, requires_grad = pid
        if name not in self._weights:
            empty = torch.empty(shape, dtype=dtype, device="meta")
            self._weights[name] = nn.Parameter(empty, requires_grad) if is_parameter else empty
        return self._weights[name]


def _load_main(origin: GivenOrigin) -> ModuleType:
    """Return what was the main module where the module was written, under another name."""
    if origin.main_file is not None:
        return load_file(origin.main_file)
    assert origin.main_module is not None, "write_module refuses what is in no file"
    spec = find_spec(origin.main_module)
    with running(Path((spec and spec.origin) or origin.main_module)):
        return import_module(origin.main_module)


def _names_main(data: bytes) -> bool:
    return _MAIN in _texts(data)


def _texts(data: bytes) -> Iterator[str]:
    for _, argument, _ in pickletools.genops(data):
        if isinstance(argument, str):
            yield argument
