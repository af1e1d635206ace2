"""Families of the caller's own that no package offers: a class in a file, or a module handed over. No torch.

They are named on this machine only, by the command line or by `slipway.export`. A request cannot name one:
its field `family` takes the name of a listed family and nothing else.
"""

import hashlib
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, TypeAdapter, ValidationError

from exporter.errors import FamilyUnusable
from exporter.frozen import Frozen
from exporter.manifest import FamilyPackage
from exporter.spec import FamilyName

ORIGIN_NAME = "family.json"  # beside the files of a module handed over
MODULE_FILE = ".module"  # the ending of the files that hold them, one per tower

_FAMILY_NAME: TypeAdapter[str] = TypeAdapter(FamilyName)
_SHOWN = 16  # characters of a digest


class FamilyFile(Frozen):
    """A class of a Python file, named FILE.py:CLASS; the class's name is the family's."""

    kind: Literal["file"] = "file"
    name: FamilyName
    path: Path
    sha256: str  # of the file, as it was when it was named

    @property
    def package(self) -> FamilyPackage:
        return FamilyPackage(distribution=self.path.name, version=f"sha256:{self.sha256[:_SHOWN]}")


class GivenOrigin(Frozen):
    """The origin of the classes of a module handed over, written beside it."""

    name: FamilyName  # the class's own
    main_module: str | None = None  # name of the module that ran as a program, where it has one
    main_file: Path | None = None  # else its file; an interactive session has neither
    folders: tuple[Path, ...] = ()  # in which the program looked for modules


class GivenModule(Frozen):
    """A module that `slipway.export` was given, and wrote into a folder."""

    kind: Literal["module"] = "module"
    name: FamilyName
    path: Path
    sha256: str  # of the files of all towers

    @property
    def package(self) -> FamilyPackage:
        return FamilyPackage(distribution="slipway.export", version=f"sha256:{self.sha256[:_SHOWN]}")


OwnFamily = Annotated[FamilyFile | GivenModule, Field(discriminator="kind")]


def find_own_family(text: str) -> FamilyFile | GivenModule | None:
    """Return the family that FILE.py:CLASS, or a folder, names; None for the name of an installed one.

    Raises:
        FamilyUnusable: there is no such file, or no class is named.
    """
    if "/" not in text and ".py" not in text:
        return None
    if Path(text).is_dir():
        return given_module(Path(text).absolute())
    file, _, name = text.rpartition(":")
    if not file.endswith(".py"):
        raise FamilyUnusable(
            f"--family {text} names no class of a Python file",
            hint="name the file and the class: --family ./my_model.py:MyFamily",
            where="family",
        )
    try:
        _FAMILY_NAME.validate_python(name)
    except ValidationError:
        raise FamilyUnusable(
            f"--family {text}: {name!r} cannot be the name of a family",
            hint="name a class whose name has letters, digits and _ only, and begins with a letter",
            where="family",
        ) from None
    path = Path(file).absolute()
    try:
        return FamilyFile(name=name, path=path, sha256=hashlib.sha256(path.read_bytes()).hexdigest())
    except OSError as error:
        raise FamilyUnusable(
            f"{path} cannot be read: {error.strerror}",
            hint="name the file that has the class",
            where="family",
        ) from error


def given_module(folder: Path) -> GivenModule:
    """Return the family of the modules that `slipway.export` wrote into a folder."""
    files = sorted(folder.glob(f"*{MODULE_FILE}"))
    if not files or not (folder / ORIGIN_NAME).exists():
        raise FamilyUnusable(
            f"the folder {folder} holds no module of slipway.export",
            hint="name a Python file and its class: --family ./my_model.py:MyFamily",
            where="family",
        )
    digest = hashlib.sha256(b"".join(hashlib.sha256(file.read_bytes()).digest() for file in files))
    origin = GivenOrigin.model_validate_json((folder / ORIGIN_NAME).read_bytes())
    return GivenModule(name=origin.name, path=folder, sha256=digest.hexdigest())
