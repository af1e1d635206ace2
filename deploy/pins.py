"""Write docker/pins/, the packages of each image with the digest of every file: `python -m deploy.pins`.

Run it after `make lock`. It asks pip which files it would take for requirements/ on this platform.
"""

import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from pydantic import BaseModel

ROOT = Path(__file__).parents[1]
PINS = ROOT / "docker" / "pins"

# Image -> the lists of requirements/ that it installs.
IMAGES: Mapping[str, Sequence[str]] = {
    "build": (),
    "service": ("service",),
    "worker-cpu": ("worker", "exporter", "torch", "cpu"),
    "worker-cuda": ("worker", "exporter", "cuda"),
}
# Packages that build the wheel; pyproject.toml names them.
BUILD = re.compile(r"^requires = \[(.*)\]$", re.MULTILINE)
# The build of torch for CUDA pins its own libraries, which requirements/ leave out. pip takes this build
# unless its index is set to another.
_CUDA = re.compile("^(torch|triton|nvidia-.*|cuda-.*)$")
_DEFAULT_INDEX = ("env", "-u", "PIP_FIND_LINKS", "-u", "PIP_EXTRA_INDEX_URL", "PIP_CONFIG_FILE=/dev/null")


class _Archive(BaseModel):
    hashes: dict[str, str]


class _Download(BaseModel):
    archive_info: _Archive


class _Metadata(BaseModel):
    name: str
    version: str


class _Install(BaseModel):
    metadata: _Metadata
    download_info: _Download


class _Report(BaseModel):
    install: list[_Install]


def pins_of(image: str) -> str:
    """Return the lines of an image's pins: name, version and digest of each file."""
    files = [f"-r{ROOT}/requirements/{name}.txt" for name in IMAGES[image]]
    installs = _resolve("--no-deps", *files) if files else _resolve(*_build_requirements())
    if image == "worker-cuda":
        torch = _resolve(f"-r{ROOT}/requirements/torch.txt", environment=_DEFAULT_INDEX)
        installs += [each for each in torch if _CUDA.match(_normal(each.metadata.name))]
    found = {_normal(each.metadata.name): each for each in installs}
    lines = [
        f"{name}=={each.metadata.version} --hash=sha256:{each.download_info.archive_info.hashes['sha256']}"
        for name, each in sorted(found.items())
    ]
    return "\n".join(["# Written by `make image-pins` for Linux on x86-64.", *lines, ""])


def _build_requirements() -> list[str]:
    found = BUILD.search((ROOT / "pyproject.toml").read_text())
    assert found is not None, "pyproject.toml says what builds the wheel"
    return [*re.findall(r'"([^"]+)"', found[1]), f"-c{ROOT}/requirements/dev.txt"]


def _resolve(*what: str, environment: Sequence[str] = ()) -> list[_Install]:
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--dry-run", "--ignore-installed"]
        subprocess.run([*environment, *pip, *what, "--report", str(report)], check=True, cwd=ROOT)
        return _Report.model_validate_json(report.read_text()).install


def _normal(name: str) -> str:
    return re.sub("[-_.]+", "-", name).lower()


if __name__ == "__main__":
    PINS.mkdir(exist_ok=True)
    for image in IMAGES:
        (PINS / f"{image}.txt").write_text(pins_of(image))
