"""The two wheels, as somebody gets them who has no checkout: what they hold, and what they do alone."""

import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from collections.abc import Iterator, Sequence
from importlib.metadata import distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from exporter.version import __version__
from processes.extras import MODULES, TORCHREC
from tests.architecture.tree import PROGRAMS, ROOT

LIBRARY, SERVICE = "slipway", "slipway_service"
CONFIG = ROOT / "tests" / "fixtures" / "torcheasyrec" / "hstu_match" / "pipeline.config"
_BUILD = "import sys; from setuptools import build_meta as b; b.build_sdist(sys.argv[1])"


@pytest.fixture(scope="module")
def wheels(tracked_files: list[str], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The wheels by name, each built from its sdist, which was built from a copy of the tree."""
    top, dist = tmp_path_factory.mktemp("tree"), tmp_path_factory.mktemp("dist")
    for name in tracked_files:
        if not name.startswith("tests/"):
            (top / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, top / name, follow_symlinks=False)
    for folder in (top / "slipway", top):
        subprocess.run([sys.executable, "-c", _BUILD, dist], cwd=folder, check=True, capture_output=True)
    sources = sorted(dist.glob("*.tar.gz"))
    pip = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation"]
    subprocess.run([*pip, "-w", dist, *sources], cwd=dist, check=True, capture_output=True, text=True)
    return {path.name.partition("-")[0]: path for path in dist.glob("*.whl")}


def _names(wheel: Path) -> set[str]:
    return {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}


def test_there_are_two(wheels: dict[str, Path]) -> None:
    assert wheels.keys() == {LIBRARY, SERVICE}


def test_the_generated_code_is_there(wheels: dict[str, Path]) -> None:
    protos = {path.stem for path in ROOT.glob("protos/exporter/config/pb/*.proto")}
    generated = re.findall(r"exporter/config/pb/(\w+)_pb2\.py\b(?!i)", "\n".join(_names(wheels[SERVICE])))
    assert protos == set(generated) != set()


def test_every_file_of_the_programs_is_in_one_of_them(
    wheels: dict[str, Path], tracked_files: list[str]
) -> None:
    shipped = {name for name in tracked_files if name.split("/")[0] in PROGRAMS}
    left = {f"slipway/{name}" for name in ("LICENSE", "README.md", "pyproject.toml")}  # of the distribution
    missing = shipped - _names(wheels[LIBRARY]) - _names(wheels[SERVICE]) - left
    assert missing == set(), "name new folders of the library in slipway/pyproject.toml"


def test_the_library_is_one_namespace_and_the_programs_are_the_others(wheels: dict[str, Path]) -> None:
    tops = {wheel: {name.split("/")[0] for name in _names(path)} for wheel, path in wheels.items()}
    assert tops == {LIBRARY: {"slipway"}, SERVICE: set(PROGRAMS) - {"slipway"}}


def test_the_library_is_typed_and_has_its_license(wheels: dict[str, Path]) -> None:
    names = zipfile.ZipFile(wheels[LIBRARY]).namelist()
    assert "slipway/py.typed" in names and any(name.endswith("licenses/LICENSE") for name in names)


def test_one_version_is_written_at_all_places() -> None:
    project = tomllib.loads((ROOT / "slipway" / "pyproject.toml").read_text())["project"]
    extras = "\n".join(each for extra in project["optional-dependencies"].values() for each in extra)
    assert {project["version"], *re.findall("==(.*)", extras)} == {__version__}


def test_an_extra_of_the_library_brings_extras_of_the_programs() -> None:
    library = tomllib.loads((ROOT / "slipway" / "pyproject.toml").read_text())["project"]
    programs = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    brought = [
        extra
        for each in library["optional-dependencies"].values()
        for requirement in map(Requirement, each)
        for extra in requirement.extras
    ]
    assert set(brought) <= programs.keys() and MODULES.keys() <= library["optional-dependencies"].keys()


def test_the_torchrec_that_messages_name_is_the_pinned_one() -> None:
    assert TORCHREC in (ROOT / "requirements" / "cpu.txt").read_text().split()
    assert f"--no-deps {TORCHREC}" in (ROOT / "slipway" / "README.md").read_text()


def test_the_sources_bring_no_generated_code(wheels: dict[str, Path]) -> None:
    (source,) = wheels[SERVICE].parent.glob(f"{SERVICE}-*.tar.gz")
    with tarfile.open(source) as archive:
        names = archive.getnames()
    assert not [name for name in names if "_pb2" in name] and any(name.endswith(".proto") for name in names)


@pytest.fixture(scope="module")
def environment(wheels: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with both wheels and what they require without an extra; the path of its `slipway`."""
    top = tmp_path_factory.mktemp("environment")
    site = _make_environment(top, [wheels[LIBRARY], wheels[SERVICE]])
    required = (
        tomllib.loads((folder / "pyproject.toml").read_text())["project"].get("dependencies", ())
        for folder in (ROOT, ROOT / "slipway")
    )
    _link([each for names in required for each in names], site)
    return top / "bin" / "slipway"


def _link(requirements: Sequence[str], site: Path) -> None:
    """Link the installed distributions of these requirements, and those that they require, to a folder."""
    for name in _required(requirements):
        for path in distribution(name).files or ():
            entry, found = path.parts[0], distribution(name).locate_file(path.parts[0])
            if entry != ".." and not (site / entry).exists():
                (site / entry).symlink_to(str(found))


def _make_environment(top: Path, wheels: Sequence[Path]) -> Path:
    """Create an environment that holds only these wheels; return the folder of its packages."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", top], check=True)
    pip = [sys.executable, "-m", "pip", "--python", str(top / "bin" / "python")]
    subprocess.run([*pip, "install", "-q", "--no-deps", *wheels], check=True, capture_output=True, text=True)
    (site,) = top.glob("lib/python*/site-packages")
    return site


def _required(requirements: Sequence[str]) -> Iterator[str]:
    """Yield the names of the distributions, and of all that those require."""
    waiting = list(requirements)
    known = set[str]()
    while waiting:
        requirement = Requirement(waiting.pop())
        if requirement.marker is not None and not requirement.marker.evaluate({"extra": ""}):
            continue
        if requirement.name not in known:
            known.add(requirement.name)
            waiting += distribution(requirement.name).requires or ()
            yield requirement.name


def _run(program: Path, *arguments: str, cwd: Path) -> tuple[int, str]:
    """Return the exit code and the last line of what a command wrote that finds no checkout."""
    command = ["env", "-u", "PYTHONPATH", str(program), *arguments]
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
    return done.returncode, (done.stdout + done.stderr).strip().rpartition("\n")[2]


def test_the_library_alone_tells_its_version_and_what_is_missing(
    wheels: dict[str, Path], tmp_path: Path
) -> None:
    _make_environment(tmp_path, [wheels[LIBRARY]])
    slipway = tmp_path / "bin" / "slipway"
    assert _run(slipway, "--version", cwd=tmp_path) == (0, f"slipway {__version__}")
    code, said = _run(slipway, "list", cwd=tmp_path)
    assert code == 1 and said.startswith("slipway: error [missing_extra]: ") and "slipway[cli]" in said


@pytest.mark.parametrize("statement", ["slipway.export", "from slipway.families import Family"])
def test_the_library_alone_says_what_its_export_needs(
    statement: str, wheels: dict[str, Path], environment: Path, tmp_path: Path
) -> None:
    _make_environment(tmp_path, [wheels[LIBRARY]])
    program = f"import slipway; {statement}"
    code, said = _run(tmp_path / "bin" / "python", "-c", program, cwd=tmp_path)
    assert code == 1 and said.startswith("ImportError: ") and 'pip install "slipway[exporter]"' in said
    code, said = _run(environment.parent / "python", "-c", program, cwd=tmp_path)
    assert code == 1 and said.startswith("processes.errors.MissingExtra: torch, ")
    assert 'pip install "slipway[exporter]"' in said


def test_the_client_calls_a_service_with_httpx_alone(wheels: dict[str, Path], tmp_path: Path) -> None:
    site = _make_environment(tmp_path, [wheels[LIBRARY]])
    _link(["httpx"], site)
    program = "from slipway.client import Client; Client('http://127.0.0.1:1').ready()"
    command = ["env", "-u", "PYTHONPATH", str(tmp_path / "bin" / "python"), "-c", program]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "ServiceUnreachable: http://127.0.0.1:1 does not answer" in done.stderr


def test_the_command_works_without_extras(environment: Path, tmp_path: Path) -> None:
    assert _run(environment, "--version", cwd=tmp_path)[0] == 0
    assert _run(environment, "plan", "--json", "--config", str(CONFIG), cwd=tmp_path)[0] == 0


@pytest.mark.parametrize(
    ("command", "code", "says"),
    [
        ("up", 1, 'pip install "slipway[up]", then pip install --no-deps "torchrec=='),
        ("export --config x", 1, 'pip install "slipway[exporter]", then pip install --no-deps'),
        ("check --artifact x", 1, 'pip install "slipway[exporter]", then pip install --no-deps'),
        ("predict --artifact x --tower item --input x --output y", 1, 'pip install "slipway[exporter]"'),
        ("prepare x y", 1, 'pip install "slipway[exporter]"'),
        ("prove x", 1, 'pip install "slipway[exporter]"'),
        ("diff x y", 1, 'pip install "slipway[exporter]"'),
        ("inspect gs://b/x", 1, "pip install 'slipway[gs]'"),
        ("inspect az://b/x", 1, "pip install 'slipway[az]'"),
    ],
)
def test_what_an_extra_would_bring_is_told_in_one_line(
    environment: Path, command: str, code: int, says: str, tmp_path: Path
) -> None:
    arguments = ["env", "-u", "PYTHONPATH", str(environment), *command.split()]
    done = subprocess.run(arguments, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr.count("\n"), done.stdout) == (code, 1, "")
    assert says in done.stderr and "internal_error" not in done.stderr


@pytest.mark.parametrize("command", ["list", "watch x", "logs x", "cancel x", "retry x", "inspect x"])
def test_what_needs_no_extra_does_not_ask_for_one(environment: Path, command: str, tmp_path: Path) -> None:
    said = _run(environment, *command.split(), cwd=tmp_path)[1]
    assert "error [service_unreachable]" in said or "error [invalid_artifact]" in said
