"""Find, load and run the code of a custom family; every error that the code raises names the family.

Installed packages offer families as entry points. A process may offer one more, of its caller's own.
"""

import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import EntryPoint, entry_points

from pydantic import ValidationError

from exporter.declaration import TowerDeclaration, invalid_declaration, require_distinct
from exporter.errors import ExportError, FamilyFailed, FamilyUnusable, InvalidDeclaration, InvalidSpec
from exporter.families.family import Family
from exporter.families.own_code import FamilyFile, GivenModule
from exporter.families.own_module import load_file
from exporter.manifest import FamilyPackage
from exporter.redaction import name_first
from exporter.spec import TowerName

GROUP = "slipway.families"

_offered: dict[str, FamilyFile | GivenModule] = {}  # in this process and its forks, by name


def offer_family(own: FamilyFile | GivenModule) -> None:
    """Offer a family of the caller's own in this process and its forks; it goes before an installed one."""
    _offered[own.name] = own


def is_own_family(name: str) -> bool:
    """Return whether the family is the caller's own."""
    return name in _offered


def family_package(name: str) -> FamilyPackage:
    """Return the distribution that offers a family, or the file, without loading its code.

    Raises:
        FamilyUnusable: no installed distribution offers it, or several do.
    """
    if own := _offered.get(name):
        return own.package
    distribution = _entry_point(name).dist
    assert distribution is not None, "entry points found by group come from distributions"
    return FamilyPackage(distribution=distribution.name, version=distribution.version)


def family_modules(name: str) -> tuple[str, ...]:
    """Return the module whose import registers the family's operators; none for one of the caller's own."""
    return () if name in _offered else (_entry_point(name).module,)


def code_digest(name: str) -> str:
    """Return the sha256 of the file of a family of the caller's own; of others their package tells more."""
    own = _offered.get(name)
    return own.sha256 if own else ""


def load_family(name: str) -> Family:
    """Load the family that an installed package, or this process, offers.

    Raises:
        FamilyUnusable: no package offers it, several do, or the offered object is not a family.
        FamilyFailed: its code raised.
    """
    own = _offered.get(name)
    with family_code(name, "loading it"):
        if isinstance(own, GivenModule):
            from exporter.families.handover.given_family import (
                GivenFamily,  # TorchRec takes seconds to import
            )

            return GivenFamily(own.path)
        offered, where = _class_in_file(own) if own else _installed_class(name)
        if isinstance(offered, type) and issubclass(offered, Family):
            return offered()
    if not isinstance(offered, Family):
        raise FamilyUnusable(
            f"family {name}: {where} is no slipway.families.Family, nor a class of it",
            hint="derive the class from slipway.families.Family; see docs/families.md",
            where=name,
        )
    return offered


def _class_in_file(own: FamilyFile) -> tuple[object, str]:
    module = load_file(own.path, sha256=own.sha256)
    if not hasattr(module, own.name):
        classes = [name for name, each in vars(module).items() if _is_family(each)]
        raise FamilyUnusable(
            f"{own.path} has no class {own.name}; families in it: {name_first(classes) or 'none'}",
            hint="name one of them, or derive the class from slipway.families.Family",
            where="family",
        )
    return getattr(module, own.name), f"{own.path}:{own.name}"


def _is_family(value: object) -> bool:
    return isinstance(value, type) and issubclass(value, Family) and value is not Family


def _installed_class(name: str) -> tuple[object, str]:
    entry_point = _entry_point(name)
    return entry_point.load(), entry_point.value


def declare_towers(family: Family, name: str, config: str) -> tuple[TowerDeclaration, ...]:
    """Return every tower that the family declares for a config.

    Raises:
        FamilyFailed: its code raised.
        InvalidDeclaration: a declaration is invalid.
    """
    with family_code(name, "declaring its towers"):
        towers = tuple(family.towers(config))
        try:
            require_distinct("tower", (tower.name for tower in towers))
        except ValueError as error:
            raise InvalidDeclaration(str(error)) from error
    return towers


def find_tower(towers: tuple[TowerDeclaration, ...], wanted: TowerName, family: str) -> TowerDeclaration:
    """Return the wanted tower; raise InvalidSpec if the family declares no such tower."""
    for tower in towers:
        if tower.name is wanted:
            return tower
    raise InvalidSpec(
        f"family {family} has no {wanted} tower",
        hint=f"its towers: {', '.join(tower.name for tower in towers) or 'none'}; name them in towers",
        where="towers",
    )


@contextmanager
def family_code(family: str, doing: str) -> Iterator[None]:
    """Run a block of the family's code; an exception in it becomes an error that names the family."""
    try:
        yield
    except InvalidDeclaration as error:
        raise InvalidDeclaration(
            f"family {family}: {error.message}", hint=error.hint, where=error.where
        ) from error
    except ValidationError as error:
        invalid = invalid_declaration(error)
        raise InvalidDeclaration(f"family {family}, {invalid.message}", where=invalid.where) from error
    except ExportError:
        raise
    except Exception as error:  # foreign code may raise anything
        failed = FamilyFailed(
            f"family {family}: {doing} raised {type(error).__name__}: {error}", where=family
        )
        failed.report = traceback.format_exc()
        raise failed from error


def _entry_point(name: str) -> EntryPoint:
    found = entry_points(group=GROUP, name=name)
    if len({entry.value for entry in found}) == 1:
        return next(iter(found))
    known = ", ".join(sorted(entry_points(group=GROUP).names)) or "none"
    raise FamilyUnusable(
        f"{'several packages offer' if found else 'no package offers'} a family {name}; offered are: {known}",
        where=name,
    )
