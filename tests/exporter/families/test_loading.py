"""Families come from installed packages by name, and whatever goes wrong in them names them."""

import pytest

from exporter.errors import FamilyFailed, FamilyUnusable, InvalidDeclaration, InvalidSpec
from exporter.families.loading import declare_towers, family_package, find_tower, load_family
from exporter.spec import TowerName
from tests.installed_families import SOUND, Install


def test_an_installed_family_is_found_by_its_name(install: Install) -> None:
    family = load_family(install("found_one"))
    [tower] = declare_towers(family, "found_one", "anything")
    assert tower.name is TowerName.MODEL


def test_its_package_is_known_without_loading_it(install: Install) -> None:
    name = install("unloaded", "raise RuntimeError('loaded')")
    assert family_package(name).model_dump() == {"distribution": "unloaded-package", "version": "1.2"}


def test_a_family_that_no_package_offers_is_refused() -> None:
    with pytest.raises(FamilyUnusable, match="no package offers a family nowhere"):
        load_family("nowhere")


def test_what_is_no_family_is_refused(install: Install) -> None:
    with pytest.raises(FamilyUnusable, match="not_a_family:Sound is no slipway.families.Family"):
        load_family(install("not_a_family", "Sound = 3"))


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("import no_such_module", "family broken: loading it raised ModuleNotFoundError"),
        ("x = 1", "family broken: loading it raised AttributeError"),
        (SOUND + "    def __init__(self): raise OSError('no disk')", "loading it raised OSError: no disk"),
    ],
)
def test_a_family_that_raises_while_loading_is_named(install: Install, source: str, message: str) -> None:
    with pytest.raises(FamilyFailed, match=message) as raised:
        load_family(install("broken", source))
    assert "Traceback" in raised.value.report


@pytest.mark.parametrize(
    ("towers", "error", "message"),
    [
        ("1 / 0", FamilyFailed, "declaring its towers raised ZeroDivisionError"),
        ("super().towers(config) * 2", InvalidDeclaration, "two towers are named model"),
        (
            "[TowerDeclaration(inputs=[InputDeclaration(name='x', dtype='int64', shape=('batch',))])]",
            InvalidDeclaration,
            "family declaring, x holds int64: give table_rows",
        ),
    ],
)
def test_a_wrong_declaration_is_an_error_that_names_the_family(
    install: Install, towers: str, error: type[Exception], message: str
) -> None:
    source = f"{SOUND}\nclass Wrong(Sound):\n    def towers(self, config):\n        return {towers}\n"
    family = load_family(install("declaring", source, offers="Wrong"))
    with pytest.raises(error, match=message):
        declare_towers(family, "declaring", "anything")


def test_a_tower_that_the_family_lacks_is_refused(install: Install) -> None:
    towers = declare_towers(load_family(install("one_tower")), "one_tower", "anything")
    with pytest.raises(InvalidSpec, match="family one_tower has no item tower") as raised:
        find_tower(towers, TowerName.ITEM, "one_tower")
    assert "its towers: model" in raised.value.hint
