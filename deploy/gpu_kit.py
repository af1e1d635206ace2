"""Write a folder of what a GPU machine without a package index lacks: `python -m deploy.gpu_kit --help`.

The machine has Python, torch, triton, numpy, pyarrow, pytest and safetensors, and is given a checkout. The
folder holds wheels of the rest, the generated protobuf code, and a script that puts both into place there.
"""

import argparse
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
MOST_BYTES = 40 << 20  # of all wheels
_PROTOS = ROOT / "exporter" / "config" / "pb"
_RELEASES = "torch-{}.txt"
_DEFAULT = ("torch.txt", "cpu.txt")  # pins of the default release
_PIN = re.compile(r"^([A-Za-z0-9_.-]+)==(\S+)", re.MULTILINE)
# torch and what it needs itself, and what machines with torch have. Such a machine reaches no object store;
# and faiss-cpu, for an index over item vectors, is as large as all other wheels.
_LEFT_OUT = frozenset(
    (
        *("torch", "triton", "filelock", "fsspec", "jinja2", "markupsafe", "mpmath", "networkx", "sympy"),
        *("setuptools", "typing-extensions", "numpy", "pyarrow", "safetensors"),
        *("boto3", "botocore", "s3transfer", "jmespath", "python-dateutil", "six", "urllib3", "faiss-cpu"),
    )
)
_GLIBC = ("manylinux_2_28", "manylinux_2_27", "manylinux_2_24", "manylinux_2_17", "manylinux2014")
_USE = """\
# Run by bash in the checkout's root, on the machine: `. {folder}/use`.
kit=$(dirname "${{BASH_SOURCE[0]}}")
python3 -m pip install -q --no-index --no-deps --no-compile --target "${{TMPDIR:-/tmp}}/slipway-site" \\
  --upgrade "$kit"/*.whl \\
  && mkdir -p {protos} && cp "$kit"/pb/* {protos}/ \\
  && export PYTHONPATH="${{TMPDIR:-/tmp}}/slipway-site:$PWD"
"""


def main() -> int:
    """Write the folder; return 1 if something is missing or the wheels are too large."""
    parser = argparse.ArgumentParser(prog="deploy.gpu_kit", description=__doc__)
    parser.add_argument("--python", default="3.12", metavar="X.Y", help="of the machine; default: 3.12")
    parser.add_argument("--torch", default="2.11", metavar="X.Y", help="of the machine; default: 2.11")
    parser.add_argument("--folder", type=Path, default=Path(".gpu-kit"), help="default: .gpu-kit")
    given = parser.parse_args()
    if not (_PROTOS / "__init__.py").exists():
        sys.stderr.write(f"{_PROTOS.relative_to(ROOT)} is missing: run make install first\n")
        return 1
    try:
        pins = list(pins_of(given.torch))
    except FileNotFoundError:
        sys.stderr.write(f"there are no pins for torch {given.torch} in requirements/\n")
        return 1
    if given.folder.exists() and any(given.folder.iterdir()) and not (given.folder / "use").exists():
        sys.stderr.write(f"{given.folder} is no kit, and not empty: name another folder\n")
        return 1
    shutil.rmtree(given.folder, ignore_errors=True)
    shutil.copytree(
        _PROTOS, given.folder / "pb", ignore=lambda _, names: [n for n in names if "pycache" in n]
    )
    if not download(pins, given.python, given.folder):
        return 1
    use = _USE.format(folder=given.folder, protos=_PROTOS.relative_to(ROOT))
    (given.folder / "use").write_text(use)
    wheels = list(given.folder.glob("*.whl"))
    size = sum(wheel.stat().st_size for wheel in wheels)
    sys.stdout.write(f"{len(wheels)} wheels, {size / 2**20:.1f} MiB, in {given.folder}\n")
    if size > MOST_BYTES:
        sys.stderr.write(f"that is more than {MOST_BYTES >> 20} MiB\n")
        return 1
    return 0


def pins_of(torch: str) -> Iterator[str]:
    """Return what to carry for a release of torch, as `name==version`.

    Raises:
        FileNotFoundError: there are no pins for the release.
    """
    requirements = ROOT / "requirements"
    of_torch = "".join((requirements / name).read_text() for name in _DEFAULT)
    if f"torch=={torch}." not in of_torch:
        of_torch = (requirements / _RELEASES.format(torch)).read_text()
    for_torch = [pin for pin in _PIN.findall(of_torch) if pin[0] in ("fbgemm-gpu-cpu", "torchrec")]
    exporter = _PIN.findall((requirements / "exporter.txt").read_text())
    for name, version in sorted([*exporter, *for_torch]):
        if name not in _LEFT_OUT:
            yield f"{name}=={version}"


def download(pins: Sequence[str], python: str, folder: Path) -> bool:
    """Download wheels for this version of Python on Linux, x86-64; return whether all were there."""
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "--quiet", "--no-deps"]
    platforms = [option for name in _GLIBC for option in ("--platform", f"{name}_x86_64")]
    which = ["--only-binary=:all:", "--python-version", python, "--implementation", "cp", *platforms]
    run = subprocess.run([*pip, *which, "--dest", str(folder), *pins], check=False, cwd=ROOT)
    return run.returncode == 0


if __name__ == "__main__":
    raise SystemExit(main())
