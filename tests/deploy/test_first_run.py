"""What compose.yaml needs beside it is written by docker/first-run.sh."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from deploy.compose import services_in
from service.access.callers import Scope
from service.access.errors import UnsafeSetup
from service.access.keys import read_keys
from tests.architecture.tree import ROOT
from tests.deploy.test_docker import COMPOSE, GIVEN


def run(checkout: Path, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    command = [checkout / "docker" / "first-run.sh"]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd="/", env=env)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    shutil.copytree(ROOT / "docker", tmp_path / "docker")
    return tmp_path


def test_compose_finds_all_that_it_needs(checkout: Path) -> None:
    assert run(checkout).returncode == 0
    written = dict(re.findall(r"^(\w+)=(.*)$", (checkout / ".env").read_text(), re.MULTILINE))
    services = services_in((ROOT / "compose.yaml").read_text(), written)
    assert len({written[name] for name in GIVEN}) == len(GIVEN)
    assert services["api"].environment["AWS_SECRET_ACCESS_KEY"] == written["S3_API_SECRET"]
    assert (checkout / written["API_KEYS_FILE"]).is_file()
    assert COMPOSE["secrets"]["api-keys"] == {"file": "${API_KEYS_FILE:-./api-keys.json}"}


def test_the_key_that_is_printed_is_let_in(checkout: Path) -> None:
    told = run(checkout)
    [key] = re.findall(r"^API key: (\w{40})$", told.stdout, re.MULTILINE)
    ring = read_keys(checkout / "api-keys.json")
    caller = ring.find(key)
    assert caller is not None and caller.scopes == {Scope.ADMIN} and ring.find("another") is None
    assert key not in (checkout / "api-keys.json").read_text()


def test_only_its_owner_reads_the_passwords_and_a_container_the_digests(checkout: Path) -> None:
    run(checkout)
    assert [(checkout / name).stat().st_mode & 0o777 for name in (".env", "api-keys.json")] == [0o600, 0o644]


@pytest.mark.parametrize("there", [".env", "api-keys.json"])
def test_nothing_is_overwritten(checkout: Path, there: str) -> None:
    (checkout / there).write_text("mine")
    told = run(checkout)
    assert told.returncode == 1 and f"{there} exists" in told.stderr
    assert sorted(path.name for path in checkout.iterdir()) == sorted(["docker", there])
    assert (checkout / there).read_text() == "mine"


def test_without_openssl_nothing_is_written(checkout: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    programs = tmp_path_factory.mktemp("programs")
    (programs / "dirname").symlink_to(shutil.which("dirname") or "")
    told = run(checkout, {"PATH": str(programs)})
    assert (told.returncode, told.stderr) == (1, "first-run.sh needs openssl\n")
    assert [path.name for path in checkout.iterdir()] == ["docker"]


def test_nobody_is_let_in_by_the_example_as_it_is() -> None:
    with pytest.raises(UnsafeSetup):
        read_keys(ROOT / "docker" / "api-keys.example.json")


@pytest.mark.parametrize("name", [".env", "api-keys.json"])
def test_git_ignores_what_is_secret(name: str) -> None:
    ignored = subprocess.run(["git", "check-ignore", "-q", name], cwd=ROOT, check=False)
    assert ignored.returncode == 0
