"""One job, one package per target, compiled for real: each holds its level and nothing beyond."""

import json
import subprocess
import zipfile
from pathlib import Path

import pytest

from cli.main import main
from exporter.aoti.cpu_levels import cpu_levels
from exporter.artifact.read import read_manifest
from tests.e2e.conftest import export_command

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(cpu_levels() != ("avx2", "avx512"), reason="needs a CPU with AVX-512"),
]


def registers_of(package: Path, folder: Path) -> set[str]:
    """The widest kinds of registers that the package's code uses."""
    with zipfile.ZipFile(package) as files:
        (library,) = (name for name in files.namelist() if name.endswith(".so"))
        local = files.extract(library, folder)
    code = subprocess.run(["objdump", "-d", local], capture_output=True, text=True, check=True).stdout
    return {kind for kind in ("ymm", "zmm") if f"%{kind}" in code}


def test_each_target_has_a_package_of_its_own_level(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = export_command("hstu_match", tmp_path / "out")
    assert main([*command, "--tower", "item", "--target", "avx2", "--target", "avx512", "--json"]) == 0
    uris = json.loads(capsys.readouterr().out)["manifest_uris"]
    found = {}
    for target, uri in uris.items():
        manifest = read_manifest(uri)
        assert manifest.architecture == f"x86_64 {target}"
        package = Path(uri).parent / manifest.towers[0].package.path
        found[target] = registers_of(package, tmp_path / target)
    assert found == {"avx2": {"ymm"}, "avx512": {"ymm", "zmm"}}
