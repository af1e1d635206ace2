"""Find, load and run the code of a custom family; every error that the code raises names the family."""

import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import EntryPoint, entry_points

from pydantic import ValidationError

from exporter.declaration import TowerDeclaration, invalid_declaration, require_distinct
from exporter.errors import ExportError, FamilyFailed, FamilyUnusable, InvalidDeclaration, InvalidSpec
from exporter.families.family import Family
from exporter.manifest import FamilyPackage
from exporter.spec import TowerName

GROUP = "slipway.families"


def family_package(name: str) -> FamilyPackage:
    """Return the distribution that offers a family, without loading its code.

    Raises:
        FamilyUnusable: no installed distribution offers it, or several do.
    """
    distribution = _entry_point(name).dist
    assert distribution is not None, "entry points found by group come from distributions"
    return FamilyPackage(distribution=distribution.name, version=distribution.version)


def family_module(name: str) -> str:
    """Return the name of the module that offers a family; importing it registers the family's operators."""
    return _entry_point(name).module


def load_family(name: str) -> Family:
    """Load the family that an installed package offers.

    Raises:
        FamilyUnusable: no package offers it, several do, or the offered object is not a family.
        FamilyFailed: its code raised.
    """
    entry_point = _entry_point(name)
    with family_code(name, "loading it"):
        offered: object = entry_point.load()
        family = offered() if isinstance(offered, type) else offered
    if not isinstance(family, Family):
        raise FamilyUnusable(
            f"family {name}: {entry_point.value} is not an exporter.families.family.Family or a class of it",
            where=name,
        )
    return family


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
