"""A family of the caller's own is named by its file and class, and whatever is wrong with these says so."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from exporter.errors import FamilyFailed, FamilyUnusable
from exporter.families import loading
from exporter.families.loading import (
    declare_towers,
    family_modules,
    family_package,
    load_family,
    offer_family,
)
from exporter.families.own_code import FamilyFile, find_own_family
from exporter.families.own_module import PREFIX, file_being_run
from exporter.spec import TowerName
from tests.installed_families import SOUND


@pytest.fixture(autouse=True)
def _nothing_stays() -> Iterator[None]:
    path = list(sys.path)
    yield
    sys.path[:] = path
    loading._offered.clear()
    for name in [name for name in sys.modules if name.startswith(PREFIX) or name == "own_neighbour"]:
        del sys.modules[name]


def named(folder: Path, source: str = SOUND, *, name: str = "Sound", file: str = "my_model.py") -> str:
    (folder / file).write_text(source)
    own = find_own_family(f"{folder / file}:{name}")
    assert isinstance(own, FamilyFile)
    offer_family(own)
    return own.name


@pytest.mark.parametrize("text", ["deepfm", "my-family", "a.b"])
def test_a_name_is_that_of_an_installed_family(text: str) -> None:
    assert find_own_family(text) is None


def test_a_class_in_a_file_is_a_family(tmp_path: Path) -> None:
    name = named(tmp_path)
    family = load_family(name)
    [tower] = declare_towers(family, name, "")
    assert tower.name is TowerName.MODEL
    assert family.build("", TowerName.MODEL).state_dict().keys() == {"scale.weight", "scale.bias"}
    package = family_package(name)
    assert package.distribution == "my_model.py" and package.version.startswith("sha256:")
    assert family_modules(name) == ()


def test_the_class_to_derive_from_is_the_librarys(tmp_path: Path) -> None:
    load_family(named(tmp_path, SOUND.replace("exporter.families.family", "slipway.families")))


def test_it_goes_before_an_installed_family_of_its_name(tmp_path: Path) -> None:
    assert load_family(named(tmp_path)).__class__.__module__ == f"{PREFIX}my_model"


def test_a_file_imports_its_neighbours_and_hides_nothing(tmp_path: Path) -> None:
    (tmp_path / "own_neighbour.py").write_text("x = 1")
    (tmp_path / "json.py").write_text("raise RuntimeError('taken for the standard library')")
    load_family(named(tmp_path, f"import json, own_neighbour\n{SOUND}"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("./absent.py:Sound", "absent.py cannot be read: No such file"),
        ("./my_model.py", "names no class of a Python file"),
        ("./my_model.py:", "'' cannot be the name of a family"),
        ("./my_model.py:_Sound", "'_Sound' cannot be the name of a family"),
        ("./my_model.txt:Sound", "names no class of a Python file"),
        ("./", "holds no module of slipway.export"),
    ],
)
def test_what_names_no_class_of_a_file_is_refused(text: str, message: str) -> None:
    with pytest.raises(FamilyUnusable, match=message):
        find_own_family(text)


def test_a_class_that_is_not_there_is_refused_with_those_that_are(tmp_path: Path) -> None:
    with pytest.raises(FamilyUnusable, match=r"my_model\.py has no class Other; families in it: Sound"):
        load_family(named(tmp_path, name="Other"))


def test_a_class_that_is_no_family_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FamilyUnusable, match=r"my_model\.py:Scaled is no slipway\.families\.Family"):
        load_family(named(tmp_path, SOUND, name="Scaled"))


def test_a_file_that_raises_is_named_with_its_traceback(tmp_path: Path) -> None:
    with pytest.raises(FamilyFailed, match="family Sound: loading it raised ZeroDivisionError") as raised:
        load_family(named(tmp_path, "1 / 0"))
    assert "my_model.py" in raised.value.report
    assert file_being_run() is None


def test_a_script_that_ends_the_program_is_told_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(FamilyUnusable, match="ends the program when it is imported") as raised:
        load_family(named(tmp_path, "import sys; sys.exit(0)"))
    assert "__main__" in raised.value.hint


def test_a_file_that_was_changed_meanwhile_is_refused(tmp_path: Path) -> None:
    name = named(tmp_path)
    (tmp_path / "my_model.py").write_text(f"{SOUND}\n")
    with pytest.raises(FamilyUnusable, match="has changed since the export began"):
        load_family(name)
