"""docs/when-an-export-fails.md: its commands are run as they stand, and what it shows is what they say."""

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.planted]

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "when-an-export-fails.md"
PYTHON = shlex.quote(sys.executable)
PIP = f"{PYTHON} -m pip install -q --no-deps --no-build-isolation --upgrade --target site"


def steps() -> list[tuple[str, list[str]]]:
    """Each command of the page, and the lines that are shown below it."""
    found: list[tuple[str, list[str]]] = []
    for block in re.findall(r"```console\n(.*?)```", PAGE.read_text(), flags=re.DOTALL):
        for line in block.splitlines():
            if line.startswith("$ "):
                found.append((line[2:], []))
            else:
                found[-1][1].append(line)
    return found


def test_the_page_can_be_followed(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    lines = [
        f"export PYTHONPATH={ROOT}:{tmp_path}/site",
        f'slipway() {{ {PYTHON} -m cli.main "$@"; }}',
        f'python() {{ {PYTHON} "$@"; }}',
        f"pip() {{ {PIP} ./examples/failing_family && rm -rf examples/failing_family/build; }}",
    ]
    for number, (command, _) in enumerate(steps()):
        lines += [f"echo '== {number}'", f"{command} 2>&1"]
    script = ["bash", "-c", "\n".join(lines)]
    ran = subprocess.run(script, cwd=tmp_path, capture_output=True, text=True, check=False)
    said = dict(re.findall(r"== (\d+)\n(.*?)(?=== \d|\Z)", ran.stdout, flags=re.DOTALL))
    for number, (command, shown) in enumerate(steps()):
        flat = " ".join(said[str(number)].split())
        missing = [line for line in shown if " ".join(line.split()) not in flat and "%" not in line]
        assert not missing, f"{command}\n{said[str(number)]}\n{ran.stderr}"
