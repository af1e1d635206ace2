"""Code of the caller's own, imported from its files: it sees its neighbours, and hides nothing of ours."""

import hashlib
import re
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

from exporter.errors import FamilyUnusable

PREFIX = "slipway_own_"  # of the names of modules that are loaded by their files
GUARD = 'put what a script does under: if __name__ == "__main__":'
_INSTALLED = frozenset({"site-packages", "dist-packages"})

_loading: list[Path] = []  # files whose code is being run


def load_file(path: Path, *, sha256: str = "") -> ModuleType:
    """Run a Python file as a module, whose name tells that no other process could import it.

    Its folder becomes the last in which modules are looked for, so that the file may import its neighbours.

    Raises:
        FamilyUnusable: the file is not the one that `sha256` is of.
        Exception: whatever its code raises.
    """
    if sha256 and hashlib.sha256(path.read_bytes()).hexdigest() != sha256:
        raise FamilyUnusable(
            f"{path} has changed since the export began", hint="export again", where=str(path)
        )
    name = PREFIX + re.sub(r"\W", "_", path.stem)
    if name in sys.modules:
        return sys.modules[name]
    look_in([path.parent])
    loader = SourceFileLoader(name, str(path))  # a script's name need not end in .py
    spec = spec_from_file_location(name, path, loader=loader)
    assert spec is not None and spec.loader is not None, "it was given one"
    module = module_from_spec(spec)
    sys.modules[name] = module  # first, as dataclasses and pickles look there for their classes
    with running(path):
        try:
            spec.loader.exec_module(module)
        except BaseException as error:
            del sys.modules[name]
            if isinstance(error, SystemExit):
                raise FamilyUnusable(f"{path} ends the program when it is imported", hint=GUARD) from error
            raise
    return module


def look_in(folders: Iterable[Path]) -> None:
    """Look for modules in these folders too, after all others: none of ours is taken for another."""
    sys.path.extend(folder for folder in map(str, folders) if folder not in sys.path)


def file_being_run() -> Path | None:
    """Return the file whose code is being run to be exported; None if there is none."""
    return _loading[-1] if _loading else None


def own_sources() -> Iterator[Path]:
    """Yield the files of all modules that are loaded and neither installed nor of Python or Slipway."""
    roots = tuple(f"{Path(root).absolute()}/" for root in (sys.base_prefix, sys.prefix))
    ours = str(Path(__file__).parents[2])
    for module in tuple(sys.modules.values()):
        file = getattr(module, "__file__", None)
        if file is None or not (Path(file).is_absolute() and Path(file).is_file()):
            continue  # torch.ops names a file that is not there; others are gone, or lie in an archive
        if file.startswith(roots) or _INSTALLED & {*Path(file).parts}:
            continue
        top = module.__name__.partition(".")[0]
        if not (file.startswith(f"{ours}/{top}") and (Path(ours) / top / "__init__.py").exists()):
            yield Path(file)


@contextmanager
def running(path: Path) -> Iterator[None]:
    """Mark a file as one whose code is being run to be exported."""
    _loading.append(path)
    try:
        yield
    finally:
        _loading.pop()
